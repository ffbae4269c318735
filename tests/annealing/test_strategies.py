"""Strategies: what each promises, traces worked out by hand, and building them by name."""

import collections
import json
import math
import random
import re

import pytest

from annealtune.annealing import (
    STRATEGIES,
    Automatic,
    Genetic,
    Geometric,
    Neighborhood,
    Setting,
    SimulatedAnnealing,
    Strategy,
    Tabu,
    VariableNeighborhood,
    Verdict,
    grid,
    make_strategy,
    takes_temperature,
)

INF, NAN = math.inf, math.nan
# Tuples, for JSON turns them into lists.
H = grid(lr=[0.1, 0.8, 0.2, 0.4], betas=[(0.9, 0.99), (0.8, 0.9)])
COOLING = Geometric(1.0, 0.97, per="step")

CASES = {
    "simulated annealing": lambda: SimulatedAnnealing(Automatic(probes=10)),
    "cooling": lambda: SimulatedAnnealing(COOLING),
    "tabu": lambda: Tabu(),
    "tabu with two candidates": lambda: Tabu(tenure=5, candidates=2),
    "variable neighborhood": lambda: VariableNeighborhood(levels=3),
    "genetic": lambda: Genetic(COOLING, population=4, trials=2),
}
EVERY = pytest.mark.parametrize("make", CASES.values(), ids=CASES)


class ScriptedRandom(random.Random):
    """Returns the given numbers, one after the other, and knows how many are left."""

    def __init__(self, *numbers):
        super().__init__(0)
        self.numbers = list(numbers)

    def random(self):
        return self.numbers.pop(0)


def through_json(strategy, twin):
    """Carry what one strategy remembers over to another, by way of JSON text."""
    twin.load_state_dict(json.loads(json.dumps(strategy.state_dict())))
    return twin


def drive(strategy, rng, source, steps, new_value=None):
    """Make steps as an optimizer does; return what can be seen of them, as text (NaN is not NaN).

    Args:
        strategy: the strategy.
        rng: its generator.
        source: the generator of the values, some of which are not finite.
        steps: how many.
        new_value: the new value of every move, instead of those.
    """
    seen = []
    strategy.check(H)

    def measure():
        if new_value is not None:
            return new_value
        return source.choice([source.random()] * 12 + [math.nan, math.inf, -math.inf])

    for number in range(steps):
        value = source.random()
        if strategy.candidates > 1:
            measured = {setting: measure() for setting in strategy.shortlist(H, rng)}
            setting = strategy.select(value, measured)
            measurement = measured[setting]
        else:
            setting, measurement = strategy.pick(H, rng), measure()
        verdict = strategy.decide(value, measurement, rng)
        strategy.observe(setting, verdict)
        strategy.tick("step")
        if number % 10 == 9:
            strategy.tick("epoch")
        seen.append((setting, verdict, strategy.temperature))
    return seen


def text(seen):
    return [repr(step) for step in seen]


def test_every_strategy_is_here():
    assert {type(make()) for make in CASES.values()} == set(STRATEGIES.values())


@EVERY
def test_it_never_leaves_the_neighborhood_and_uses_all_of_it(make):
    seen = drive(make(), random.Random(0), random.Random(1), 400)
    settings = {setting for setting, _, _ in seen}
    assert settings <= set(H)
    if not isinstance(make(), Genetic):  # which is there to forget what gains nothing
        assert settings == set(H)


@EVERY
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_rejected_at_any_time(make, broken):
    strategy, rng, source = make(), random.Random(0), random.Random(1)
    for _ in range(5):
        drive(strategy, rng, source, 7)
        for _, verdict, _ in drive(strategy, rng, source, 3, new_value=broken):
            assert (verdict.accepted, verdict.accept_probability) == (False, 0.0)


@EVERY
def test_an_improvement_is_kept_at_any_time(make):
    strategy, rng, source = make(), random.Random(0), random.Random(1)
    for _ in range(5):
        drive(strategy, rng, source, 7)
        for _, verdict, _ in drive(strategy, rng, source, 3, new_value=-1.0):
            assert (verdict.accepted, verdict.accept_probability) == (True, 1.0)


@EVERY
@pytest.mark.parametrize("cut", [0, 8, 43])
def test_saved_as_json_text_it_continues_the_very_same(make, cut):
    strategy, rng, source = make(), random.Random(0), random.Random(9)
    drive(strategy, rng, source, cut)
    saved = json.dumps(strategy.state_dict())
    states = rng.getstate(), source.getstate()
    expected = drive(strategy, rng, source, 80)
    resumed, rng, source = make(), random.Random(), random.Random()
    resumed.load_state_dict(json.loads(saved))
    assert json.dumps(resumed.state_dict()) == saved
    rng.setstate(states[0])
    source.setstate(states[1])
    assert text(drive(resumed, rng, source, 80)) == text(expected)
    assert {verdict.accepted for _, verdict, _ in expected} == {True, False}


class CountingRandom(random.Random):
    """Counts the numbers that are drawn from it."""

    draws = 0

    def random(self):
        self.draws += 1
        return super().random()


@pytest.mark.parametrize("temperature", [0.0, 0.5, math.inf])
@pytest.mark.parametrize("new_value", [0.5, 1.0, 1.5, NAN, INF])
def test_a_step_of_simulated_annealing_draws_two_numbers_needed_or_not(temperature, new_value):
    rng, strategy = CountingRandom(0), SimulatedAnnealing(temperature)
    for steps in range(1, 4):
        strategy.pick(H, rng)
        strategy.decide(1.0, new_value, rng)
        assert rng.draws == 2 * steps


def test_the_move_that_completes_the_measurement_is_decided_at_the_temperature_before_it():
    strategy = SimulatedAnnealing(Automatic(probes=1, start=1e9, end=1e9))
    assert not strategy.decide(0.0, 1.0, random.Random(0)).accepted
    assert strategy.decide(0.0, 1.0, random.Random(0)).accepted


def test_a_schedule_is_copied_so_that_it_can_serve_many_runs():
    schedule = Geometric(1.0, 0.5)
    one, other = SimulatedAnnealing(schedule), SimulatedAnnealing(schedule)
    one.tick("epoch")
    assert (one.temperature, other.temperature, schedule.temperature) == (0.5, 1.0, 1.0)


A, B, C, D = FOUR = Neighborhood([{"lr": rate} for rate in (0.1, 0.2, 0.3, 0.4)])

# Tenure 2. The value, what each candidate leads to, the one to take, and whether it is kept; in
# the comment who is tabu for how many more steps, and the best gain before the step.
TABU = [
    # nobody: the lowest value wins
    (10.0, {A: 8.0, B: 9.0, C: 9.5}, A, True),
    # A2, gain 2: A is tabu but gains 3, more than ever: aspiration
    (8.0, {A: 5.0, B: 7.5, D: 7.75}, A, True),
    # A2, gain 3: A gains 3 again, which is not more
    (5.0, {A: 2.0, B: 4.5, C: 4.75}, B, True),
    # A1 B2: both are tabu, so it goes uphill with C
    (4.5, {A: 4.0, B: 3.0, C: 6.0}, C, True),
    # B1 C2: D is broken, nobody admissible; the tabu of B ends first
    (6.0, {C: 4.0, B: 5.0, D: NAN}, B, True),
    # C1 B2
    (5.0, {B: 4.0, C: 4.5, A: 4.75}, A, True),
    # B1 A2: all are broken, whichever is taken is undone, and time passes
    (4.75, {C: NAN, A: INF, B: -INF}, C, False),
    # A1: C did not become tabu, for it was not moved with; it goes uphill with the better of two
    (4.75, {A: 4.5, C: 6.0, D: 5.0}, D, True),
    # D2
    (5.0, {D: 4.25, A: 4.5, B: 4.75}, A, True),
    # D1 A2: D gains 3.25
    (4.5, {D: 1.25, B: 4.0, A: 4.25}, D, True),
    # A1 D2, gain 3.25: A gains 3
    (4.25, {A: 1.25, B: 4.0}, B, True),
]


def tabu_step(strategy, value, measured):
    selected = strategy.select(value, measured)
    verdict = strategy.decide(value, measured[selected], random.Random(0))
    strategy.observe(selected, verdict)
    strategy.tick("step")
    return selected, verdict.accepted


@pytest.mark.parametrize("cut", [None, 5])
def test_tabu_by_hand(cut):
    strategy = Tabu(tenure=2)
    for number, (value, measured, selected, accepted) in enumerate(TABU):
        if number == cut:
            strategy = through_json(strategy, Tabu(tenure=2))
        assert tabu_step(strategy, value, measured) == (selected, accepted)
    assert strategy.state_dict() == {
        "tabu": [[{"lr": 0.4}, 1], [{"lr": 0.2}, 2]],
        "best_gain": 3.25,
    }


def moved_with(strategy, *settings):
    for setting in settings:
        strategy.observe(setting, Verdict.of(1.0, 1.0, accepted=True))
    return strategy


@pytest.mark.parametrize(("members", "tenure"), [(1, 0), (2, 1), (6, 2), (14, 4)])
def test_the_default_tenure_is_a_third_of_the_neighborhood(members, tenure):
    strategy, neighborhood = Tabu(), grid(lr=[float(rate) for rate in range(members)])
    strategy.check(neighborhood)
    moved_with(strategy, neighborhood[0])
    expected = [[{"lr": 0.0}, tenure]] if tenure else []
    assert strategy.state_dict()["tabu"] == expected


def test_the_shortlist_is_drawn_uniformly_without_replacement_from_all_of_the_neighborhood():
    strategy, rng = moved_with(Tabu(tenure=2, candidates=3), A), random.Random(0)
    counts = collections.Counter()
    for _ in range(4000):
        shortlist = strategy.shortlist(FOUR, rng)
        assert len(set(shortlist)) == 3
        counts.update(shortlist)
    # Each is on it with probability 3/4: 3000 with a deviation of 27, tabu or not.
    assert set(counts) == {A, B, C, D}
    assert all(abs(count - 3000) < 5 * 27 for count in counts.values())


SIX = grid(lr=[0.3, 0.6, 0.1, 0.4, 0.5, 0.2])  # in any order

# Three levels, up to the rates 0.2, 0.4 and 0.6: the level, value, new value, kept.
VARIABLE = [
    (1, 5.0, 6.0, False),
    (2, 5.0, 6.0, False),  # a failure advances
    (3, 5.0, 6.0, False),
    (1, 5.0, 4.0, True),  # after the last comes the first
    (1, 4.0, 4.5, False),  # a success returns to the first
    (2, 4.0, 3.0, True),
    (1, 3.0, 3.0, True),  # kept, but no success
    (2, 3.0, NAN, False),
    (3, 3.0, 2.0, True),
    (1, 2.0, INF, False),
    (2, 2.0, -INF, False),  # a broken point is a failure
    (3, 2.0, 2.5, False),
    (1, 2.0, 1.5, True),
]
BOUNDS = {1: 0.2, 2: 0.4, 3: 0.6}


@pytest.mark.parametrize("cut", [None, 8])
def test_variable_neighborhood_by_hand(cut):
    strategy, rng = VariableNeighborhood(levels=3), random.Random(0)
    strategy.check(SIX)
    for number, (level, value, new_value, accepted) in enumerate(VARIABLE):
        if number == cut:
            strategy = through_json(strategy, VariableNeighborhood(levels=3))
            strategy.check(SIX)
        assert strategy.level == level
        setting = strategy.pick(SIX, rng)
        assert setting["lr"] <= BOUNDS[level]
        verdict = strategy.decide(value, new_value, rng)
        assert verdict.accepted is accepted
        strategy.observe(setting, verdict)
        strategy.tick("step")
    assert strategy.level == 1


def reach(strategy, neighborhood, level):
    """All settings that are picked at a level."""
    strategy.check(neighborhood)
    strategy.load_state_dict({"level": level})
    rng = random.Random(0)
    return {strategy.pick(neighborhood, rng) for _ in range(60 * len(neighborhood))}


@pytest.mark.parametrize(
    ("values", "levels", "sizes"),
    [(8, 4, [2, 4, 6, 8]), (7, 4, [1, 3, 5, 7]), (5, 2, [2, 5]), (3, 1, [3])],
)
def test_the_sets_are_nested_from_small_values_to_all(values, levels, sizes):
    neighborhood = grid(lr=[float(rate) for rate in range(values)], momentum=[0.0, 0.9])
    strategy = VariableNeighborhood(levels=levels)
    for level, size in enumerate(sizes, start=1):
        expected = {setting for setting in neighborhood if setting["lr"] < size}
        assert reach(strategy, neighborhood, level) == expected


G = grid(lr=[0.1, 0.2, 0.3], momentum=[0.0, 0.9])


def setting(lr, momentum):
    return Setting({"lr": lr, "momentum": momentum})


def begun(strategy, members):
    """Give a strategy its first generation."""
    state = strategy.state_dict()
    state.update(members=[dict(m) for m in members], gains=[0.0] * len(members), tried=0)
    strategy.load_state_dict(state)
    return strategy


def three():
    return Genetic(0.0, population=3, trials=2)


# Three members, tried in turns, twice each: the setting, the value, the new value.
FIRST = [
    (setting(0.1, 0.0), 5.0, 4.0),  # gains 1
    (setting(0.2, 0.9), 4.0, 2.0),  # gains 2
    (setting(0.3, 0.0), 2.0, 5.0),  # loses 3; undone, but measured
    (setting(0.1, 0.0), 2.0, 1.5),  # gains 0.5: 1.5 together
    (setting(0.2, 0.9), 1.5, 2.5),  # loses 1: 1 together
    (setting(0.3, 0.0), 1.5, 0.5),  # gains 1: -2 together
]
# The first survives; the numbers that breed the other two:
FIRST_BREEDING = [
    *(0.1, 0.9),  # places 0 and 2 compete: 0 wins
    *(0.5, 0.8),  # 1 and 2: 1 wins
    *(0.7, 0.2),  # the rate of the first parent, the momentum of the second
    0.6,  # no mutation
    *(0.4, 0.95),  # 1 and 2: 1 wins
    *(0.99, 0.99),  # 2 against itself
    *(0.1, 0.9),  # the rate of the second parent, the momentum of the first: 0.3 and 0.9
    0.1,  # a mutation
    0.2,  # of the rate,
    0.5,  # to its one neighbor 0.2
]
SECOND = [
    (setting(0.1, 0.0), 0.5, 0.75),  # loses 0.25
    (setting(0.1, 0.9), 0.5, NAN),  # broken: it loses every tournament
    (setting(0.2, 0.9), 0.5, 0.25),  # gains 0.25
    (setting(0.1, 0.0), 0.25, 0.125),  # gains 0.125: -0.125 together
    (setting(0.1, 0.9), 0.125, 0.0),  # too late
    (setting(0.2, 0.9), 0.0, 0.125),  # loses 0.125: 0.125 together
]
SECOND_BREEDING = [
    *(0.4, 0.5),  # 1 against itself: somebody must win
    *(0.4, 0.1),  # 1 and 0: 0 wins
    *(0.2, 0.6),  # the rate of the second parent, the momentum of the first: 0.1 and 0.9
    0.9,  # no mutation
    *(0.7, 0.1),  # 2 and 0: 2 wins
    *(0.1, 0.2),  # 0 against itself
    *(0.9, 0.1),  # the rate of the first parent, the momentum of the second: 0.2 and 0.0
    0.1,  # a mutation
    0.9,  # of the momentum,
    0.0,  # to its one neighbor 0.9
]
THIRD = [setting(0.2, 0.9), setting(0.1, 0.9), setting(0.2, 0.9)]


@pytest.mark.parametrize("cut", [None, 5, 7])
def test_genetic_by_hand(cut):
    strategy = begun(three(), [move[0] for move in FIRST[:3]])
    rng = ScriptedRandom(*FIRST_BREEDING, *SECOND_BREEDING)
    for number, (expected, value, new_value) in enumerate(FIRST + SECOND):
        if number == cut:
            strategy = through_json(strategy, three())
        assert strategy.pick(G, rng) == expected
        strategy.observe(expected, strategy.decide(value, new_value, random.Random(0)))
        strategy.tick("step")
    assert strategy.pick(G, rng) == THIRD[0]
    assert strategy.members == tuple(THIRD)
    assert rng.numbers == []


def test_a_child_outside_the_neighborhood_is_replaced_by_its_fitter_parent():
    low, high = setting(0.1, 0.0), setting(0.2, 0.9)
    neighborhood = Neighborhood([low, high])
    for gains, survivor, heir in (([2.0, 1.0], low, low), ([1.0, 2.0], high, high)):
        strategy = begun(Genetic(0.0, population=2, trials=1), G[:2])
        strategy.load_state_dict(
            {**strategy.state_dict(), "members": [low, high], "gains": gains, "tried": 2}
        )
        # Both are parents; the rate of the first with the momentum of the second is not in G.
        strategy.pick(neighborhood, ScriptedRandom(0.0, 0.0, 0.9, 0.9, 0.9, 0.1, 0.9))
        assert strategy.members == (survivor, heir)


@pytest.mark.parametrize(
    ("neighborhood", "start", "reached"),
    [
        (grid(lr=[0.3, 0.1, 0.5, 0.2]), {"lr": 0.2}, [{"lr": 0.1}, {"lr": 0.3}]),
        (grid(lr=[0.3, 0.1, 0.5, 0.2]), {"lr": 0.5}, [{"lr": 0.3}]),
        (grid(clip=[None, 1.0, 5.0]), {"clip": None}, [{"clip": 1.0}, {"clip": 5.0}]),
        (
            grid(lr=[0.1], nesterov=[False, True]),  # the rate has nowhere to go
            {"lr": 0.1, "nesterov": False},
            [{"lr": 0.1, "nesterov": True}],
        ),
        (grid(lr=[0.1]), {"lr": 0.1}, [{"lr": 0.1}]),
    ],
)
def test_a_mutation_goes_to_a_neighboring_value(neighborhood, start, reached):
    strategy, rng, found = Genetic(0.0, population=2, trials=1), random.Random(0), []
    for _ in range(300):
        begun(strategy, [Setting(start)] * 2)
        strategy.load_state_dict({**strategy.state_dict(), "tried": 2})
        strategy.pick(neighborhood, rng)
        found.append(strategy.members[1])
    assert set(found) == {Setting(start), *(Setting(options) for options in reached)}


class Mine(Strategy):
    def __init__(self, *, patience=3):
        self.patience = patience

    def decide(self, value, new_value, rng):
        return Verdict.of(value, new_value, accepted=True)


def test_options_and_a_temperature_reach_the_constructor_that_takes_them():
    taking = [name for name, cls in STRATEGIES.items() if takes_temperature(cls)]
    assert taking == ["simulated-annealing", "genetic"]
    made = make_strategy(Genetic, {"population": 5, "trials": 3}, Geometric(2.0, 0.5))
    assert (made.temperature, made.population, made.trials) == (2.0, 5, 3)
    assert make_strategy(Mine, {"patience": 7}, temperature=0.5).patience == 7
    with pytest.raises(TypeError, match="patient"):
        make_strategy(Mine, {"patient": 3}, temperature=0.5)


@pytest.mark.parametrize(
    ("build", "error", "argument"),
    [
        (lambda: SimulatedAnnealing(-1.0), ValueError, "SimulatedAnnealing(temperature=...)"),
        (lambda: Tabu(tenure=-1), ValueError, "Tabu(tenure=...)"),
        (lambda: Tabu(candidates=1), ValueError, "Tabu(candidates=...)"),
        (lambda: Tabu(tenure=4).check(FOUR), ValueError, "Tabu(tenure=...)"),
        (lambda: VariableNeighborhood(0), ValueError, "VariableNeighborhood(levels=...)"),
        (lambda: VariableNeighborhood(7).check(SIX), ValueError, "VariableNeighborhood(levels"),
        (
            lambda: VariableNeighborhood().check(grid(momentum=[0.1, 0.2])),
            ValueError,
            "VariableNeighborhood(levels=...)",
        ),
        (lambda: Genetic(0.0, population=1), ValueError, "Genetic(population=...)"),
    ],
)
def test_bad_input_names_class_and_argument(build, error, argument):
    with pytest.raises(error, match=re.escape(argument)):
        build()
