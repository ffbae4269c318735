"""Threshold accepting, worked out by hand."""

import math
import random

import pytest

from annealtune.annealing import Automatic, Geometric, ThresholdAccepting

INF, NAN = math.inf, math.nan

# The threshold is halved after every move, from 1 down to 1/16.
TRACE = [
    (2.0, 3.0, True),  # threshold 1: a worsening of exactly 1
    (3.0, 3.75, False),  # 0.5 against 0.75
    (3.0, 3.25, True),  # 0.25 against 0.25
    (3.25, 3.5, False),  # 0.125 against 0.25
    (3.25, 2.25, True),  # an improvement
    (2.25, 2.25, True),  # nothing changed
    (2.25, 2.3125, True),  # from here on 0.0625, against 0.0625
    (2.3125, 2.5, False),  # against 0.1875
    (2.3125, INF, False),
    (2.3125, NAN, False),
    (2.3125, -INF, False),  # a broken point, not a good one
    (2.3125, 2.0, True),
]


def halving():
    return ThresholdAccepting(Geometric(1.0, 0.5, per="step", floor=0.0625))


@pytest.mark.parametrize("cut", [None, 1, 4, 11])
def test_a_trace_worked_out_by_hand(decide_all, cut):
    verdicts = decide_all(halving, [move[:2] for move in TRACE], cut)
    assert [verdict.accepted for verdict in verdicts] == [accepted for *_, accepted in TRACE]
    # There is no chance in it.
    assert [verdict.accept_probability for verdict in verdicts] == [float(m[2]) for m in TRACE]


@pytest.mark.parametrize(("threshold", "accepted"), [(0.0, False), (1e9, True), (INF, True)])
def test_constant_thresholds(threshold, accepted):
    strategy = ThresholdAccepting(threshold)
    assert strategy.temperature == threshold
    assert strategy.decide(1.0, 9.0, random.Random(0)).accepted is accepted
    assert strategy.decide(1.0, 1.0, random.Random(0)).accepted
    assert strategy.decide(INF, 1.0, random.Random(0)).accepted


def test_the_threshold_can_be_measured_in_units_of_the_worsenings():
    strategy = ThresholdAccepting(Automatic(probes=1, start=2.0, end=2.0))
    assert not strategy.decide(0.0, 0.5, random.Random(0)).accepted  # it measures 0.5
    assert strategy.decide(0.0, 1.0, random.Random(0)).accepted  # the threshold is 2 * 0.5
    assert not strategy.decide(0.0, 1.25, random.Random(0)).accepted


@pytest.mark.parametrize(
    ("temperature", "error", "parts"),
    [
        (-1.0, ValueError, ["ThresholdAccepting(temperature=...)", "not negative", "-1.0"]),
        ("low", TypeError, ["ThresholdAccepting(temperature=...)", "a number", "'low'"]),
    ],
)
def test_bad_input_names_class_argument_rule_and_value(temperature, error, parts):
    with pytest.raises(error) as caught:
        ThresholdAccepting(temperature)
    for part in parts:
        assert part in str(caught.value)
