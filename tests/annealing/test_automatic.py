"""The temperature that measures its own unit."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annealtune.annealing import Automatic, SimulatedAnnealing

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


@pytest.mark.parametrize("arguments", LENGTHS)
def test_the_walk_above_is_decided_by_luck_and_temperature(arguments):
    rng = random.Random(5)
    worsenings = [rng.gauss(1, 1) for _ in range(150)]
    verdicts = walk(Automatic(probes=8, **arguments), worsenings)
    uphill = [v.accepted for v in verdicts if v.worsening > 0]
    assert True in uphill
    assert False in uphill


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


def test_an_even_number_of_probes_takes_the_middle():
    schedule = Automatic(length=10, probes=2, start=1.0, end=1.0)
    schedule.observe(1.0)
    schedule.observe(-3.0)
    assert schedule.temperature == 2.0


def test_while_the_unit_is_measured_a_reckless_move_is_not_taken():
    worsenings = [1e6, *[-0.5] * 10, 1e6, 1e-3, 1e6]
    verdicts = walk(Automatic(length=100, probes=20), worsenings)
    assert [v.accepted for v in verdicts] == [False, *[True] * 10, False, True, False]


def test_no_worsening_move_at_all_still_gives_a_unit():
    verdicts = walk(Automatic(length=5, probes=4), [-0.5] * 50)
    assert all(v.accepted for v in verdicts)
    schedule = Automatic(length=5, probes=4, start=10.0)
    for _ in range(4):
        schedule.observe(-0.5)
    assert schedule.temperature == 5.0


def test_all_zero_goes_on_measuring():
    schedule = Automatic(length=100, per="step", probes=3, start=10.0, end=0.1)
    for _ in range(1000):
        schedule.observe(0.0)
        schedule.tick("step")
    assert schedule.unit is None
    assert schedule.temperature == 0.0
    for _ in range(3):
        schedule.observe(2.0)
    assert schedule.unit == 2.0
    # The planned length was over before anything moved: no time is left to cool in.
    assert schedule.temperature == 20.0


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


@pytest.mark.parametrize(("clock", "other"), [("step", "epoch"), ("epoch", "step")])
def test_the_temperature_falls_geometrically_from_start_to_end(clock, other):
    schedule = Automatic(length=5, per=clock, probes=1, start=16.0, end=1.0)
    schedule.observe(0.5)
    seen = []
    for _ in range(7):
        seen.append(schedule.temperature)
        schedule.tick(other)
        schedule.tick(clock)
    assert seen == pytest.approx([8.0, 4.0, 2.0, 1.0, 0.5, 0.5, 0.5])


def test_a_quench_pulls_the_temperature_to_zero_at_the_planned_length():
    schedule = Automatic(length=5, per="step", probes=1, start=16.0, end=1.0, quench=2.0)
    schedule.observe(1.0)
    seen = []
    for _ in range(6):
        seen.append(schedule.temperature)
        schedule.tick("step")
    assert seen == pytest.approx([16.0, 8.0 * 9 / 16, 4.0 / 4, 2.0 / 16, 0.0, 0.0])
    assert seen[-2:] == [0.0, 0.0]


def test_a_late_measurement_still_ends_at_the_planned_length():
    schedule = Automatic(length=6, per="step", probes=1, start=8.0, end=1.0)
    for _ in range(2):
        schedule.observe(0.0)
        schedule.tick("step")
    schedule.observe(1.0)
    seen = []
    for _ in range(4):
        seen.append(schedule.temperature)
        schedule.tick("step")
    assert seen == pytest.approx([8.0, 4.0, 2.0, 1.0])


def test_a_length_of_one_stays_at_its_start():
    schedule = Automatic(length=1, probes=1, start=4.0, end=1.0)
    schedule.observe(1.0)
    assert schedule.temperature == 4.0
    schedule.tick("epoch")
    assert schedule.temperature == 4.0


def test_without_a_length_the_temperature_falls_as_documented():
    schedule = Automatic(probes=4, start=10.0)
    assert schedule.per == "step"
    for _ in range(4):
        schedule.observe(3.0)
        schedule.tick("epoch")  # no clock of the anytime schedule
    seen = []
    for _ in range(13):
        seen.append(schedule.temperature)
        schedule.tick("step")
    assert seen == pytest.approx([30.0 / (1 + k / 4) for k in range(13)])
