"""The great deluge, worked out by hand."""

import math
import random

import pytest

from annealtune.annealing import GreatDeluge

INF, NAN = math.inf, math.nan

# Half of the distance is rained off: value, new value, kept, level afterwards.
TRACE = [
    (8.0, 4.0, True, 6.0),  # the level is 8, the first value; then 8 - (8 - 4) / 2
    (4.0, 6.0, True, 6.0),  # on the level; no distance, no rain
    (6.0, 7.0, False, 6.0),  # above it
    (6.0, 2.0, True, 4.0),  # 6 - (6 - 2) / 2
    (2.0, 4.0, True, 4.0),
    (4.0, 3.0, True, 3.5),  # 4 - (4 - 3) / 2
    (3.0, 3.75, False, 3.5),
    (3.0, 3.5, True, 3.5),
    (9.0, 8.0, True, 3.5),  # another minibatch: above the level but better; it never rises
    (8.0, 8.5, False, 3.5),
    (8.0, 8.0, True, 3.5),  # nothing changed
    (8.0, 1.5, True, 2.5),  # 3.5 - (3.5 - 1.5) / 2
    (1.5, INF, False, 2.5),
    (1.5, NAN, False, 2.5),
    (1.5, -INF, False, 2.5),
    (1.5, 2.5, True, 2.5),
    (2.5, 2.75, False, 2.5),
]


@pytest.mark.parametrize("cut", [None, 0, 1, 8, 16])
def test_a_trace_worked_out_by_hand(decide_all, cut):
    verdicts = decide_all(lambda: GreatDeluge(rain=0.5), [move[:2] for move in TRACE], cut)
    assert [verdict.accepted for verdict in verdicts] == [accepted for *_, accepted, _ in TRACE]


def test_the_level_sinks_as_worked_out_by_hand():
    strategy = GreatDeluge(rain=0.5)
    for value, new_value, _, level in TRACE:
        strategy.decide(value, new_value, random.Random(0))
        assert strategy.level == level


def test_the_default_rain_is_one_per_cent():
    strategy = GreatDeluge()
    strategy.decide(100.0, 0.0, random.Random(0))
    assert strategy.level == 99.0


def test_without_rain_the_first_value_is_the_level_for_ever():
    strategy = GreatDeluge(rain=0)
    moves = [(5.0, 1.0), (1.0, 5.0), (5.0, 5.5)]
    outcomes = [strategy.decide(*move, random.Random(0)).accepted for move in moves]
    assert (outcomes, strategy.level) == ([True, True, False], 5.0)


def test_from_an_infeasible_start_the_level_is_the_first_finite_value():
    strategy = GreatDeluge(rain=0.5)
    moves = [(INF, INF), (INF, 5.0), (5.0, 6.0), (5.0, 4.0)]
    outcomes = [strategy.decide(*move, random.Random(0)).accepted for move in moves]
    assert (outcomes, strategy.level) == ([False, True, False, True], 4.5)


def test_scaling_and_shifting_all_values_changes_no_decision():
    source = random.Random(5)
    # Whole numbers and thirty halvings stay exact.
    moves = [(float(source.randrange(16)), float(source.randrange(16))) for _ in range(30)]
    outcomes = []
    for scale, shift in ((1.0, 0.0), (8.0, 100.0)):
        strategy = GreatDeluge(rain=0.5)
        scaled = [(scale * value + shift, scale * new + shift) for value, new in moves]
        outcomes.append([strategy.decide(*move, random.Random(0)).accepted for move in scaled])
    assert outcomes[0] == outcomes[1]
    assert set(outcomes[0]) == {True, False}


@pytest.mark.parametrize(
    ("rain", "error", "parts"),
    [
        (-0.1, ValueError, ["GreatDeluge(rain=...)", "between 0 and 1", "-0.1"]),
        (1.5, ValueError, ["GreatDeluge(rain=...)", "between 0 and 1", "1.5"]),
        (NAN, ValueError, ["GreatDeluge(rain=...)", "between 0 and 1", "nan"]),
        ("much", TypeError, ["GreatDeluge(rain=...)", "a number", "'much'"]),
    ],
)
def test_bad_input_names_class_argument_rule_and_value(rain, error, parts):
    with pytest.raises(error) as caught:
        GreatDeluge(rain)
    for part in parts:
        assert part in str(caught.value)
