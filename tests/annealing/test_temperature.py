"""Temperatures: constant, geometric, reheated, automatic, and what they have in common."""

import json
import math
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annealtune.annealing import (
    Automatic,
    Constant,
    Geometric,
    Reheating,
    SimulatedAnnealing,
)
from annealtune.annealing.temperature import as_schedule


def temperatures(schedule, clock, ticks):
    """The temperature before each of so many ticks."""
    seen = []
    for _ in range(ticks):
        seen.append(schedule.temperature)
        schedule.tick(clock)
    return seen


def test_geometric_cooling_multiplies_once_a_tick():
    # The paper's numbers: T0 = 1, alpha = 0.8 per epoch.
    expected = [1.0]
    for _ in range(99):
        expected.append(0.8 * expected[-1])
    assert temperatures(Geometric(1.0, 0.8), "epoch", 100) == expected
    assert math.isclose(expected[28], 0.8**28, rel_tol=1e-12)


def test_the_floor_is_reached_and_kept():
    assert temperatures(Geometric(1.0, 0.5, floor=0.2), "epoch", 5) == [1.0, 0.5, 0.25, 0.2, 0.2]


@given(st.integers(1, 7), st.integers(0, 4), st.integers(1, 60))
def test_reheating_counts_its_restorations(every, times, ticks):
    seen = temperatures(Reheating(Geometric(1.0, 0.5), every=every, times=times), "epoch", ticks)
    expected = [every * k for k in range(times + 1) if every * k < ticks]
    assert [tick for tick, temperature in enumerate(seen) if temperature == 1.0] == expected


SCHEDULES = {
    "constant": lambda: Constant(0.7),
    "infinite": lambda: Constant(math.inf),
    "geometric per epoch": lambda: Geometric(1.0, 0.9),
    "geometric per step": lambda: Geometric(1.0, 0.9, per="step", floor=0.01),
    "reheating": lambda: Reheating(Geometric(1.0, 0.9, per="step"), every=7, times=3),
    "automatic per epoch": lambda: Automatic(length=12, probes=9),
    "automatic per step": lambda: Automatic(length=60, per="step", probes=9),
    "automatic, quenched": lambda: Automatic(length=60, per="step", probes=9, quench=2.0),
    "automatic anytime": lambda: Automatic(probes=9),
}
MOVES = [((-1) ** k * 1.37 ** (k % 11), k % 5 == 4) for k in range(60)]


def drive(schedule, moves):
    """The temperature of each move; some of them end an epoch."""
    seen = []
    for worsening, ends_epoch in moves:
        seen.append(schedule.temperature)
        schedule.observe(worsening)
        schedule.tick("step")
        if ends_epoch:
            schedule.tick("epoch")
    return seen


@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("cut", [0, 5, 10, 31])
def test_a_state_saved_in_the_middle_continues_to_the_last_bit(make, cut):
    whole = drive(make(), MOVES)
    first = make()
    drive(first, MOVES[:cut])
    state = first.state_dict()
    text = json.dumps(state)
    drive(first, MOVES[cut:])  # the saved state does not follow the schedule it came from
    assert json.dumps(state) == text
    second = make()
    second.load_state_dict(json.loads(text))
    assert drive(second, MOVES[cut:]) == whole[cut:]


GEOMETRIC = Geometric(1.0, 0.5)


@pytest.mark.parametrize(
    ("build", "error", "argument"),
    [
        (lambda: Constant(-1.0), ValueError, "Constant(temperature=...)"),
        (lambda: Constant("1"), TypeError, "Constant(temperature=...)"),
        (lambda: Geometric(0.0, 0.8), ValueError, "Geometric(initial=...)"),
        (lambda: Geometric(1.0, 1.0), ValueError, "Geometric(factor=...)"),
        (lambda: Geometric(1.0, 0.8, per="minibatch"), ValueError, "Geometric(per=...)"),
        (lambda: Geometric(1.0, 0.8, floor=2.0), ValueError, "Geometric(floor=...)"),
        (
            lambda: Reheating(Constant(1.0), every=1, times=1),
            TypeError,
            "Reheating(schedule=...)",
        ),
        (lambda: Reheating(GEOMETRIC, every=0, times=1), ValueError, "Reheating(every=...)"),
        (lambda: Automatic(length=0), ValueError, "Automatic(length=...)"),
        (lambda: Automatic(length=3, per="day"), ValueError, "Automatic(per=...)"),
        (lambda: Automatic(quench=-1), ValueError, "Automatic(quench=...)"),
        (lambda: Automatic(start=1.0, end=2.0), ValueError, "Automatic(start=..., end=...)"),
        (lambda: as_schedule("SGDSA", "warm"), TypeError, "SGDSA(temperature=...)"),
    ],
)
def test_bad_input_names_class_and_argument(build, error, argument):
    with pytest.raises(error, match=re.escape(argument)):
        build()


# Automatic: the temperature that measures its own unit.
LENGTHS = [
    {},
    {"length": 150, "per": "step"},
    {"length": 15, "per": "epoch"},
    {"length": 150, "per": "step", "quench": 2.0},
]


def walk(schedule, worsenings, scale=1.0, seed=0):
    """The verdicts of a walk; every tenth step ends an epoch."""
    strategy = SimulatedAnnealing(schedule)
    rng = random.Random(seed)
    value = 100.0 * scale
    verdicts = []
    for number, worsening in enumerate(worsenings, start=1):
        verdict = strategy.decide(value, value + worsening * scale, rng)
        if verdict.accepted:
            value += worsening * scale
        verdicts.append(verdict)
        strategy.tick("step")
        if number % 10 == 0:
            strategy.tick("epoch")
    return verdicts


# Multiples of 1/1024 below 1024: sums of them are exact, scaled by a power of two as well.
EXACT = st.integers(-(2**20), 2**20).map(lambda number: number / 1024)


@pytest.mark.parametrize("arguments", LENGTHS)
@given(worsenings=st.lists(EXACT, min_size=40, max_size=150), seed=st.integers(0, 2**32))
def test_scaling_every_value_changes_no_decision(arguments, worsenings, seed):
    plain = walk(Automatic(probes=8, **arguments), worsenings, seed=seed)
    for scale in (1024.0, 2.0**-30):
        scaled = walk(Automatic(probes=8, **arguments), worsenings, scale, seed=seed)
        assert [v.accepted for v in scaled] == [v.accepted for v in plain]
        assert [v.accept_probability for v in scaled] == [v.accept_probability for v in plain]


def test_the_unit_is_the_median_size_of_the_first_worsenings():
    schedule = Automatic(length=10, probes=5, start=10.0, end=0.1)
    median_so_far = {3.0: 0.0, -7.0: 3.0, 0.5: 5.0, 100.0: 3.0}
    for worsening, temperature in median_so_far.items():
        assert schedule.unit is None
        assert schedule.temperature == temperature
        schedule.observe(worsening)
    schedule.observe(-1.0)
    assert schedule.unit == 3.0  # of 0.5, 1, 3, 7, 100
    assert schedule.temperature == 30.0
    schedule.observe(1e9)
    assert schedule.unit == 3.0


def test_while_the_unit_is_measured_a_reckless_move_is_not_taken():
    worsenings = [1e6, *[-0.5] * 10, 1e6, 1e-3, 1e6]
    verdicts = walk(Automatic(length=100, probes=20), worsenings)
    assert [v.accepted for v in verdicts] == [False, *[True] * 10, False, True, False]


def test_moves_that_are_not_finite_are_rejected_and_not_measured():
    schedule = Automatic(length=100, probes=2)
    strategy = SimulatedAnnealing(schedule)
    rng = random.Random(0)
    for value, broken in [(1.0, math.nan), (1.0, math.inf), (1.0, -math.inf), (math.inf, math.nan)]:
        assert not strategy.decide(value, broken, rng).accepted
    assert strategy.state_dict()["measured"] == []
    assert strategy.decide(math.inf, 5.0, rng).accepted  # feasible at last; no size to learn from
    assert strategy.state_dict()["measured"] == []
    assert strategy.decide(5.0, 3.0, rng).accepted
    assert strategy.state_dict()["measured"] == [2.0]


FALLS = {
    "geometric": ({"length": 5, "per": "step"}, [8.0, 4.0, 2.0, 1.0, 0.5, 0.5, 0.5]),
    "per epoch": ({"length": 5, "per": "epoch"}, [8.0, 4.0, 2.0, 1.0, 0.5, 0.5, 0.5]),
    "quenched": (
        {"length": 5, "per": "step", "quench": 2.0},
        [8.0, 4.0 * 9 / 16, 2.0 / 4, 1.0 / 16, 0.0, 0.0],
    ),
    "without a length": ({}, [8.0 / (1 + k) for k in range(13)]),
}


@pytest.mark.parametrize(("options", "expected"), FALLS.values(), ids=FALLS)
def test_the_temperature_falls_as_documented(options, expected):
    schedule = Automatic(probes=1, start=16.0, end=1.0, **options)
    schedule.observe(0.5)
    seen = []
    for _ in expected:
        seen.append(schedule.temperature)
        schedule.tick("epoch" if schedule.per == "step" else "step")  # not its clock
        schedule.tick(schedule.per)
    assert seen == pytest.approx(expected)
