"""The genetic algorithm over H, worked out by hand."""

import collections
import json
import math
import random

import pytest

from annealtune.annealing import Genetic, Geometric, Neighborhood, Setting, grid

INF, NAN = math.inf, math.nan
H = grid(lr=[0.1, 0.2, 0.3], momentum=[0.0, 0.9])


def setting(lr, momentum):
    return Setting({"lr": lr, "momentum": momentum})


def begun(strategy, members):
    """Give a strategy its first generation."""
    state = strategy.state_dict()
    state.update(members=[dict(m) for m in members], gains=[0.0] * len(members), tried=0)
    strategy.load_state_dict(state)
    return strategy


def make():
    return Genetic(0.0, population=3, trials=2, mutation=0.5)


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
    0.3,  # a mutation
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


@pytest.mark.parametrize("cut", [None, 0, 1, 5, 6, 7, 11])
def test_a_trace_worked_out_by_hand(scripted, through_json, cut):
    strategy = begun(make(), [move[0] for move in FIRST[:3]])
    rng = scripted(*FIRST_BREEDING, *SECOND_BREEDING)
    for number, (expected, value, new_value) in enumerate(FIRST + SECOND):
        if number == cut:
            strategy = through_json(strategy, make())
        assert strategy.pick(H, rng) == expected
        strategy.observe(expected, strategy.decide(value, new_value, random.Random(0)))
        strategy.tick("step")
    assert strategy.pick(H, rng) == THIRD[0]
    assert strategy.members == tuple(THIRD)
    assert rng.numbers == []


def test_decisions_are_those_of_simulated_annealing():
    # 5 units of worsening at temperature 10: kept with probability exp(-0.5) = 0.61.
    strategy, rng = Genetic(10.0), random.Random(0)
    kept = sum(strategy.decide(0.0, 5.0, rng).accepted for _ in range(2000))
    share = math.exp(-0.5)
    assert abs(kept - 2000 * share) < 5 * math.sqrt(2000 * share * (1 - share))


def test_the_temperature_cools_and_is_saved(through_json):
    schedule = Geometric(1.0, 0.5, per="step")
    strategy = Genetic(schedule)
    strategy.tick("step")
    assert through_json(strategy, Genetic(schedule)).temperature == 0.5
    assert schedule.temperature == 1.0


def test_picking_again_without_a_measurement_changes_nothing(scripted):
    strategy = begun(make(), [move[0] for move in FIRST[:3]])
    assert strategy.pick(H, scripted()) == strategy.pick(H, scripted()) == FIRST[0][0]


def test_a_child_outside_the_neighborhood_is_replaced_by_its_fitter_parent(scripted):
    low, high = setting(0.1, 0.0), setting(0.2, 0.9)
    neighborhood = Neighborhood([low, high])
    for gains, survivor, heir in (([2.0, 1.0], low, low), ([1.0, 2.0], high, high)):
        strategy = begun(Genetic(0.0, population=2, trials=1, tournament=1, mutation=0.0), H[:2])
        strategy.load_state_dict(
            {**strategy.state_dict(), "members": [low, high], "gains": gains, "tried": 2}
        )
        # Both are parents; the rate of the first with the momentum of the second is not in H.
        strategy.pick(neighborhood, scripted(0.0, 0.9, 0.9, 0.1, 0.9))
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
    strategy, rng, found = Genetic(0.0, population=2, trials=1, mutation=1.0), random.Random(0), []
    for _ in range(60):
        begun(strategy, [Setting(start)] * 2)
        strategy.load_state_dict({**strategy.state_dict(), "tried": 2})
        strategy.pick(neighborhood, rng)
        found.append(strategy.members[1])
    assert set(found) == {Setting(options) for options in reached}


def test_the_first_generation_is_drawn_without_replacement_as_far_as_possible():
    small, large = Genetic(0.0, population=4), Genetic(0.0, population=15)
    for seed in range(20):
        for strategy in (small, large):
            strategy.load_state_dict({**strategy.state_dict(), "members": []})
            strategy.pick(H, random.Random(seed))
        assert len(set(small.members)) == 4
        counts = collections.Counter(large.members)
        assert sorted(counts.values()) == [2, 2, 2, 3, 3, 3]
        assert set(counts) == set(H)


def test_it_finds_the_setting_that_gains_the_most():
    strategy, rng = Genetic(0.0, population=4, trials=1), random.Random(0)
    neighborhood = grid(lr=[k / 10 for k in range(1, 10)], momentum=[0.0, 0.5, 0.9])
    noise = random.Random(1)
    for _ in range(4 * 40):
        picked = strategy.pick(neighborhood, rng)
        gain = 1 - abs(picked["lr"] - 0.4) + picked["momentum"] + noise.gauss(0, 0.01)
        strategy.observe(picked, strategy.decide(1.0, 1.0 - gain, rng))
    assert strategy.members[0] == {"lr": 0.4, "momentum": 0.9}


def test_settings_with_tuples_survive_json(through_json):
    neighborhood = grid(betas=[(0.9, 0.99), (0.8, 0.9)])
    strategy = Genetic(0.0, population=2)
    strategy.pick(neighborhood, random.Random(0))
    assert through_json(strategy, Genetic(0.0, population=2)).members == strategy.members


def test_a_broken_member_is_written_as_minus_infinity():
    strategy = begun(make(), H[:3])
    strategy.observe(H[0], strategy.decide(1.0, NAN, random.Random(0)))
    assert json.loads(json.dumps(strategy.state_dict()))["gains"] == [-INF, 0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        ({"population": 1}, ValueError, ["Genetic(population=...)", "at least 2", "1"]),
        ({"population": 2.0}, TypeError, ["Genetic(population=...)", "whole number", "2.0"]),
        ({"trials": 0}, ValueError, ["Genetic(trials=...)", "at least 1", "0"]),
        ({"tournament": 0}, ValueError, ["Genetic(tournament=...)", "at least 1", "0"]),
        ({"mutation": 1.5}, ValueError, ["Genetic(mutation=...)", "between 0 and 1", "1.5"]),
        ({"mutation": None}, TypeError, ["Genetic(mutation=...)", "a number", "None"]),
        ({"temperature": -1}, ValueError, ["Genetic(temperature=...)", "not negative", "-1"]),
    ],
)
def test_bad_input_names_class_argument_rule_and_value(arguments, error, parts):
    with pytest.raises(error) as caught:
        Genetic(**{"temperature": 0.0, **arguments})
    for part in parts:
        assert part in str(caught.value)


def test_a_state_of_another_population_is_refused():
    strategy, neighborhood = Genetic(0.0, population=4), grid(lr=[0.1, 0.2, 0.3])
    strategy.pick(neighborhood, random.Random(0))
    with pytest.raises(ValueError, match="a population of 8, got one of 4"):
        Genetic(0.0, population=8).load_state_dict(strategy.state_dict())
