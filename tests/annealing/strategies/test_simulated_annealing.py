"""The strategy: one draw a pick, one draw a decision, a schedule of its own."""

import json
import math
import random

import pytest

from annealtune.annealing import (
    Automatic,
    Constant,
    Geometric,
    Reheating,
    SimulatedAnnealing,
    Strategy,
    accept_probability,
    grid,
)


class CountingRandom(random.Random):
    """Counts the numbers that are drawn from it."""

    draws = 0

    def random(self):
        self.draws += 1
        return super().random()


@pytest.mark.parametrize("temperature", [0.0, 0.5, math.inf])
@pytest.mark.parametrize(
    ("value", "new_value"),
    [(1.0, 0.5), (1.0, 1.0), (1.0, 1.5), (1.0, math.nan), (1.0, math.inf), (math.inf, 1.0)],
)
def test_a_decision_takes_exactly_one_draw_needed_or_not(temperature, value, new_value):
    rng = CountingRandom(0)
    strategy = SimulatedAnnealing(temperature)
    for decisions in range(1, 4):
        strategy.decide(value, new_value, rng)
        assert rng.draws == decisions


def test_a_pick_takes_exactly_one_draw():
    rng = CountingRandom(0)
    SimulatedAnnealing(1.0).pick(grid(lr=[0.1, 0.2, 0.3]), rng)
    assert rng.draws == 1


def test_the_pick_is_the_one_of_the_neighborhood():
    neighborhood = grid(lr=[0.1, 0.2, 0.3])
    strategy = SimulatedAnnealing(1.0)
    ours, reference = random.Random(3), random.Random(3)
    for _ in range(50):
        assert strategy.pick(neighborhood, ours) == neighborhood[int(3 * reference.random())]


# Value, new value, the number drawn, the probability (worked out as a power of e) and the verdict.
# The temperature is halved after every move, from 2 down to 1/4.
TRACE = [
    (3.0, 5.0, 0.36, 0.36788, True),  # T = 2: worsening / T = 1
    (5.0, 5.5, 0.61, 0.60653, False),  # T = 1: 0.5
    (5.0, 5.5, 0.36, 0.36788, True),  # T = 0.5: the same worsening, 1
    (5.5, 6.5, 0.02, 0.01832, False),  # from here on T = 0.25: 4
    (5.5, 4.0, 0.99, 1.0, True),  # an improvement
    (4.0, 4.0, 0.99, 1.0, True),  # nothing changed
    (4.0, 4.25, 0.37, 0.36788, False),  # 1
    (4.0, 4.25, 0.36, 0.36788, True),  # 1 again, and luck
    (4.25, math.inf, 0.0, 0.0, False),
    (4.25, math.nan, 0.0, 0.0, False),
    (4.25, -math.inf, 0.0, 0.0, False),  # a broken point, not a good one
    (4.25, 4.75, 0.13, 0.13534, True),  # 2
]


@pytest.mark.parametrize("cut", [None, 1, 3, 8])
def test_a_trace_worked_out_by_hand(scripted, through_json, cut):
    def halving():
        return SimulatedAnnealing(Geometric(2.0, 0.5, per="step", floor=0.25))

    strategy, rng = halving(), scripted(*(draw for _, _, draw, _, _ in TRACE))
    for number, (value, new_value, _, probability, accepted) in enumerate(TRACE):
        if number == cut:
            strategy = through_json(strategy, halving())
        verdict = strategy.decide(value, new_value, rng)
        strategy.tick("step")
        assert verdict.accept_probability == pytest.approx(probability, abs=1e-5)
        assert verdict.accepted is accepted
    assert rng.numbers == []


def test_decisions_follow_the_temperature_of_the_moment():
    strategy = SimulatedAnnealing(Geometric(1.0, 0.5, per="step"))
    for temperature in (1.0, 0.5, 0.25):
        assert strategy.temperature == temperature
        verdict = strategy.decide(2.0, 2.5, random.Random(0))
        assert verdict.accept_probability == accept_probability(0.5, temperature)
        strategy.tick("epoch")
        strategy.tick("step")


def test_the_move_that_completes_the_measurement_is_decided_at_the_temperature_before_it():
    strategy = SimulatedAnnealing(Automatic(probes=1, start=1e9, end=1e9))
    assert not strategy.decide(0.0, 1.0, random.Random(0)).accepted
    assert strategy.decide(0.0, 1.0, random.Random(0)).accepted


def test_a_schedule_is_copied_so_that_it_can_serve_many_runs():
    schedule = Geometric(1.0, 0.5)
    one, other = SimulatedAnnealing(schedule), SimulatedAnnealing(schedule)
    one.tick("epoch")
    assert (one.temperature, other.temperature, schedule.temperature) == (0.5, 1.0, 1.0)


def decide_all(strategy, rng, values):
    verdicts = []
    for value, new_value in values:
        verdicts.append(strategy.decide(value, new_value, rng))
        strategy.tick("step")
    return verdicts


@pytest.mark.parametrize(
    "schedule",
    [
        Constant(0.4),
        Geometric(1.0, 0.97, per="step"),
        Reheating(Geometric(1.0, 0.9, per="step"), every=20, times=2),
        Automatic(length=100, per="step", probes=40),
        Automatic(probes=10),
    ],
    ids=repr,
)
def test_a_strategy_saved_in_the_middle_decides_the_same(schedule):
    source = random.Random(8)
    values = [(source.random(), source.random()) for _ in range(100)]
    rng = random.Random(1)
    strategy = SimulatedAnnealing(schedule)
    decide_all(strategy, rng, values[:30])
    state, rng_state = json.loads(json.dumps(strategy.state_dict())), rng.getstate()
    expected = decide_all(strategy, rng, values[30:])
    resumed, resumed_rng = SimulatedAnnealing(schedule), random.Random()
    resumed.load_state_dict(state)
    resumed_rng.setstate(rng_state)
    assert decide_all(resumed, resumed_rng, values[30:]) == expected
    assert {verdict.accepted for verdict in expected} == {True, False}


def test_it_fits_the_protocol_and_shows_its_schedule():
    strategy = SimulatedAnnealing(0.5)
    assert isinstance(strategy, Strategy)
    assert repr(strategy) == "SimulatedAnnealing(Constant(0.5))"


@pytest.mark.parametrize(
    ("temperature", "error", "parts"),
    [
        (-1.0, ValueError, ["SimulatedAnnealing(temperature=...)", "not negative", "-1.0"]),
        (math.nan, ValueError, ["SimulatedAnnealing(temperature=...)", "not negative", "nan"]),
        ("hot", TypeError, ["SimulatedAnnealing(temperature=...)", "a number", "'hot'"]),
        (Geometric, TypeError, ["SimulatedAnnealing(temperature=...)", "a number", "Geometric"]),
    ],
)
def test_bad_input_names_class_argument_rule_and_value(temperature, error, parts):
    with pytest.raises(error) as caught:
        SimulatedAnnealing(temperature)
    for part in parts:
        assert part in str(caught.value)
