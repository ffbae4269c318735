"""Constant, geometric and reheated temperatures, and what every schedule has in common."""

import copy
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annealtune.annealing import Automatic, Constant, Geometric, Reheating, Schedule
from annealtune.annealing.temperature import as_schedule


def temperatures(schedule, clock, ticks):
    """The temperature before each of so many ticks."""
    seen = []
    for _ in range(ticks):
        seen.append(schedule.temperature)
        schedule.tick(clock)
    return seen


@pytest.mark.parametrize("temperature", [0, 0.5, 3, math.inf])
def test_a_constant_never_changes(temperature):
    schedule = Constant(temperature)
    for clock in ("step", "epoch"):
        schedule.tick(clock)
        schedule.observe(17.0)
    assert schedule.temperature == temperature
    assert isinstance(schedule.temperature, float)


def test_geometric_cooling_multiplies_once_a_tick():
    # The paper's numbers: T0 = 1, alpha = 0.8 per epoch.
    expected = [1.0]
    for _ in range(99):
        expected.append(0.8 * expected[-1])
    assert temperatures(Geometric(1.0, 0.8), "epoch", 100) == expected
    assert math.isclose(expected[28], 0.8**28, rel_tol=1e-12)


@pytest.mark.parametrize(("own", "other"), [("step", "epoch"), ("epoch", "step")])
def test_geometric_cooling_follows_one_clock(own, other):
    schedule = Geometric(2.0, 0.5, per=own)
    schedule.tick(other)
    assert schedule.temperature == 2.0
    schedule.tick(own)
    assert schedule.temperature == 1.0


def test_the_floor_is_reached_and_kept():
    assert temperatures(Geometric(1.0, 0.5, floor=0.2), "epoch", 5) == [1.0, 0.5, 0.25, 0.2, 0.2]


def test_without_a_floor_the_temperature_underflows_to_zero():
    schedule = Geometric(1.0, 0.5, per="step")
    temperatures(schedule, "step", 2000)
    assert schedule.temperature == 0.0


def test_reheating_restores_the_initial_temperature_as_often_as_told():
    schedule = Reheating(Geometric(8.0, 0.5), every=3, times=2)
    assert temperatures(schedule, "epoch", 11) == [8, 4, 2, 8, 4, 2, 8, 4, 2, 1, 0.5]


def test_reheating_follows_the_clock_of_its_schedule():
    schedule = Reheating(Geometric(8.0, 0.5, per="step"), every=2, times=1)
    assert schedule.per == "step"
    assert temperatures(schedule, "epoch", 4) == [8, 8, 8, 8]
    assert temperatures(schedule, "step", 4) == [8, 4, 8, 4]


def test_no_reheating_is_plain_cooling():
    plain, reheated = Geometric(1.0, 0.9), Reheating(Geometric(1.0, 0.9), every=1, times=0)
    assert temperatures(plain, "epoch", 20) == temperatures(reheated, "epoch", 20)


def test_reheating_at_every_tick_stays_at_the_initial_temperature_for_so_long():
    schedule = Reheating(Geometric(1.0, 0.5), every=1, times=3)
    assert temperatures(schedule, "epoch", 6) == [1, 1, 1, 1, 0.5, 0.25]


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
@pytest.mark.parametrize("cut", [0, 4, 5, 9, 10, 31, 59])
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


@pytest.mark.parametrize(
    "name", [name for name in SCHEDULES if name not in ("constant", "infinite")]
)
def test_the_moves_above_change_the_temperature_on_both_sides_of_most_cuts(name):
    seen = drive(SCHEDULES[name](), MOVES)
    assert len(set(seen[:31])) > 3
    assert len(set(seen[31:])) > 3


@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
def test_a_loaded_schedule_is_independent_of_the_state_it_was_given(make):
    source = make()
    drive(source, MOVES[:5])
    state = source.state_dict()
    before = json.dumps(state)
    target = make()
    target.load_state_dict(state)
    drive(target, MOVES[5:])
    assert json.dumps(state) == before


@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
def test_every_schedule_fits_the_protocol_and_can_be_copied(make):
    schedule = make()
    drive(schedule, MOVES[:5])
    assert isinstance(schedule, Schedule)
    duplicate = copy.deepcopy(schedule)
    assert repr(duplicate) == repr(schedule)
    assert drive(duplicate, MOVES[5:]) == drive(schedule, MOVES[5:])


def test_repr_shows_every_argument():
    assert repr(Constant(1)) == "Constant(1.0)"
    assert repr(Geometric(1, 0.8)) == "Geometric(1.0, 0.8, per='epoch', floor=0.0)"
    assert repr(Reheating(Geometric(1, 0.8), every=3, times=2)) == (
        "Reheating(Geometric(1.0, 0.8, per='epoch', floor=0.0), every=3, times=2)"
    )
    assert repr(Automatic(length=5, probes=4, start=3, end=2, quench=1)) == (
        "Automatic(length=5, per='epoch', probes=4, start=3.0, end=2.0, quench=1.0)"
    )


def test_as_schedule_makes_a_constant_and_lets_a_schedule_through():
    schedule = Geometric(1.0, 0.8)
    assert as_schedule("Owner", schedule) is schedule
    assert as_schedule("Owner", 2).temperature == 2.0


GEOMETRIC = Geometric(1.0, 0.5)


@pytest.mark.parametrize(
    ("build", "error", "parts"),
    [
        (lambda: Constant(-1.0), ValueError, ["Constant(temperature=...)", "not negative", "-1.0"]),
        (lambda: Constant(math.nan), ValueError, ["Constant(temperature=...)", "not neg", "nan"]),
        (lambda: Constant("1"), TypeError, ["Constant(temperature=...)", "a number", "'1'"]),
        (lambda: Constant(True), TypeError, ["Constant(temperature=...)", "a number", "True"]),
        (lambda: Constant(None), TypeError, ["Constant(temperature=...)", "a number", "None"]),
        (lambda: Geometric(0.0, 0.8), ValueError, ["Geometric(initial=...)", "positive", "0.0"]),
        (lambda: Geometric(-2, 0.8), ValueError, ["Geometric(initial=...)", "negative", "-2"]),
        (lambda: Geometric(math.inf, 0.8), ValueError, ["Geometric(initial=...)", "finite", "inf"]),
        (lambda: Geometric(1.0, 0.0), ValueError, ["Geometric(factor=...)", "0 and 1", "0.0"]),
        (lambda: Geometric(1.0, 1.0), ValueError, ["Geometric(factor=...)", "0 and 1", "1.0"]),
        (lambda: Geometric(1.0, 1.5), ValueError, ["Geometric(factor=...)", "0 and 1", "1.5"]),
        (lambda: Geometric(1.0, -0.5), ValueError, ["Geometric(factor=...)", "0 and 1", "-0.5"]),
        (lambda: Geometric(1.0, math.nan), ValueError, ["Geometric(factor=...)", "0 and 1", "nan"]),
        (lambda: Geometric(1.0, "0.8"), TypeError, ["Geometric(factor=...)", "number", "'0.8'"]),
        (
            lambda: Geometric(1.0, 0.8, per="minibatch"),
            ValueError,
            ["Geometric(per=...)", "'step' or 'epoch'", "'minibatch'"],
        ),
        (
            lambda: Geometric(1.0, 0.8, floor=-0.1),
            ValueError,
            ["Geometric(floor=...)", "not negative", "-0.1"],
        ),
        (
            lambda: Geometric(1.0, 0.8, floor=2.0),
            ValueError,
            ["Geometric(floor=...)", "not exceed initial=1.0", "2.0"],
        ),
        (
            lambda: Reheating(Constant(1.0), every=1, times=1),
            TypeError,
            ["Reheating(schedule=...)", "a Geometric", "Constant(1.0)"],
        ),
        (
            lambda: Reheating(GEOMETRIC, every=0, times=1),
            ValueError,
            ["Reheating(every=...)", "at least 1", "got 0"],
        ),
        (
            lambda: Reheating(GEOMETRIC, every=2.5, times=1),
            TypeError,
            ["Reheating(every=...)", "whole number", "2.5"],
        ),
        (
            lambda: Reheating(GEOMETRIC, every=2, times=-1),
            ValueError,
            ["Reheating(times=...)", "at least 0", "-1"],
        ),
        (
            lambda: Reheating(GEOMETRIC, every=2, times=True),
            TypeError,
            ["Reheating(times=...)", "whole number", "True"],
        ),
        (lambda: Automatic(length=0), ValueError, ["Automatic(length=...)", "at least 1", "0"]),
        (lambda: Automatic(length=1.5), TypeError, ["Automatic(length=...)", "whole", "1.5"]),
        (
            lambda: Automatic(length=3, per="day"),
            ValueError,
            ["Automatic(per=...)", "'step' or 'epoch'", "'day'"],
        ),
        (
            lambda: Automatic(per="day"),
            ValueError,
            ["Automatic(per=...)", "'step' or 'epoch'", "'day'"],
        ),
        (lambda: Automatic(probes=0), ValueError, ["Automatic(probes=...)", "at least 1", "got 0"]),
        (lambda: Automatic(start=-1), ValueError, ["Automatic(start=...)", "negative", "-1"]),
        (lambda: Automatic(quench=-1), ValueError, ["Automatic(quench=...)", "negative", "-1"]),
        (lambda: Automatic(end=0.0), ValueError, ["Automatic(start=..., end=...)", "end=0.0"]),
        (
            lambda: Automatic(start=1.0, end=2.0),
            ValueError,
            ["Automatic(start=..., end=...)", "end <= start", "start=1.0, end=2.0"],
        ),
        (
            lambda: Automatic(start=math.inf),
            ValueError,
            ["Automatic(start=..., end=...)", "start < inf", "start=inf"],
        ),
        (
            lambda: as_schedule("SGDSA", "warm"),
            TypeError,
            ["SGDSA(temperature=...)", "a number", "'warm'"],
        ),
        (
            lambda: as_schedule("SGDSA", -0.5),
            ValueError,
            ["SGDSA(temperature=...)", "not negative", "-0.5"],
        ),
        (
            lambda: as_schedule("SGDSA", Geometric),
            TypeError,
            ["SGDSA(temperature=...)", "a number", "Geometric"],
        ),
    ],
)
def test_bad_input_names_class_argument_rule_and_value(build, error, parts):
    with pytest.raises(error) as caught:
        build()
    for part in parts:
        assert part in str(caught.value)
