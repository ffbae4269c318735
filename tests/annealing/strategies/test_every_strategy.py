"""What every strategy promises, whatever its rule."""

import copy
import json
import math
import pickle
import random

import pytest

from annealtune.annealing import (
    STRATEGIES,
    Automatic,
    Comparing,
    Genetic,
    Geometric,
    GreatDeluge,
    HillClimbing,
    LateAcceptance,
    PlainStrategy,
    RandomWalk,
    SimulatedAnnealing,
    Strategy,
    Tabu,
    ThresholdAccepting,
    VariableNeighborhood,
    grid,
)

# Tuples, for JSON turns them into lists.
H = grid(lr=[0.1, 0.8, 0.2, 0.4], betas=[(0.9, 0.99), (0.8, 0.9)])
COOLING = Geometric(1.0, 0.97, per="step")

CASES = {
    "simulated annealing": lambda: SimulatedAnnealing(Automatic(probes=10)),
    "threshold accepting": lambda: ThresholdAccepting(COOLING),
    "late acceptance": lambda: LateAcceptance(length=5),
    "great deluge": lambda: GreatDeluge(rain=0.1),
    "hill climbing": HillClimbing,
    "random walk": RandomWalk,
    "tabu": lambda: Tabu(),
    "tabu with one candidate": lambda: Tabu(tenure=5, candidates=1),
    "variable neighborhood": lambda: VariableNeighborhood(levels=3),
    "given neighborhoods": lambda: VariableNeighborhood(nested=[H[:2], H[:5], H]),
    "genetic": lambda: Genetic(COOLING, population=4, trials=2),
}
EVERY = pytest.mark.parametrize("make", CASES.values(), ids=CASES)


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

    def measure():
        if new_value is not None:
            return new_value
        return source.choice([source.random()] * 12 + [math.nan, math.inf, -math.inf])

    for number in range(steps):
        value = source.random()
        if isinstance(strategy, Comparing) and strategy.candidates > 1:
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
def test_it_fits_the_protocol_and_shows_itself(make):
    strategy = make()
    assert isinstance(strategy, Strategy)
    assert repr(strategy).startswith(f"{type(strategy).__name__}(")
    strategy.check(H)


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
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("cut", [0, 1, 8, 17, 43])
def test_saved_as_json_text_it_continues_the_very_same(make, seed, cut):
    strategy, rng, source = make(), random.Random(seed), random.Random(9)
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


@EVERY
def test_a_saved_state_does_not_follow_the_strategy(make):
    strategy, rng, source = make(), random.Random(0), random.Random(1)
    drive(strategy, rng, source, 20)
    state = strategy.state_dict()
    saved = json.dumps(state)
    other = make()
    other.load_state_dict(state)
    drive(strategy, rng, source, 20)
    drive(other, rng, source, 20)
    assert json.dumps(state) == saved


@EVERY
def test_one_seed_is_one_run(make):
    runs = [text(drive(make(), random.Random(s), random.Random(1), 80)) for s in (5, 5, 6)]
    assert runs[0] == runs[1] != runs[2]


@EVERY
@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))], ids=["copied", "pickled"]
)
def test_a_duplicate_continues_on_its_own(make, duplicate):
    strategy, rng, source = make(), random.Random(0), random.Random(1)
    drive(strategy, rng, source, 30)
    twin, saved = duplicate(strategy), json.dumps(strategy.state_dict())
    ahead = text(drive(twin, *copy.deepcopy((rng, source)), 40))
    assert json.dumps(strategy.state_dict()) == saved  # untouched by its twin
    assert text(drive(strategy, rng, source, 40)) == ahead


# Where nothing is remembered, nothing can be missing.
REMEMBERING = {name: make for name, make in CASES.items() if make().state_dict()}


@pytest.mark.parametrize("make", REMEMBERING.values(), ids=REMEMBERING)
def test_a_state_of_another_strategy_lacks_a_key(make):
    strategy = make()
    others = [other() for other in CASES.values() if type(other()) is not type(strategy)]
    assert len(others) >= 8
    for other in others:
        with pytest.raises(KeyError):
            strategy.load_state_dict(other.state_dict())


def test_one_seed_makes_all_that_only_decide_try_the_same_settings():
    tried = {
        name: [setting for setting, _, _ in drive(make(), random.Random(3), random.Random(1), 60)]
        for name, make in CASES.items()
        if not make().picks_settings
    }
    assert len(tried) == 6
    assert len({tuple(settings) for settings in tried.values()}) == 1


def test_a_strategy_without_a_decision_says_what_is_missing():
    class Undecided(PlainStrategy):
        pass

    with pytest.raises(
        NotImplementedError, match=r"^Undecided must define decide\(value, new_value"
    ):
        Undecided().decide(1.0, 2.0, random.Random(0))
