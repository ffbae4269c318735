"""Late acceptance, worked out by hand."""

import math
import random

import pytest

from annealtune.annealing import HillClimbing, LateAcceptance

INF, NAN = math.inf, math.nan

# A memory of three; in the comment what it holds at the decision, the oldest first.
TRACE = [
    (10.0, 12.0, False),  # 10 10 10
    (10.0, 8.0, True),  # 10 10 10
    (8.0, 9.5, True),  # 10 10 8: worse than now, better than three steps ago
    (9.5, 10.0, True),  # 10 8 9.5: as good as three steps ago
    (10.0, 9.0, True),  # 8 9.5 10: worse than three steps ago, better than now
    (9.0, 9.5, True),  # 9.5 10 9
    (9.5, 11.0, False),  # 10 9 9.5
    (9.5, 9.25, True),  # 9 9.5 9.5: a rejected move leaves the old value in the memory
    (9.25, 9.5, True),  # 9.5 9.5 9.25
    (9.5, NAN, False),  # 9.5 9.25 9.5
    (9.5, 9.4, True),  # 9.25 9.5 9.5
    (9.4, 9.6, False),  # 9.5 9.5 9.4
    (9.4, -INF, False),  # 9.5 9.4 9.4
    (9.4, 9.4, True),  # 9.4 9.4 9.4: as good as now
]


@pytest.mark.parametrize("cut", [None, 0, 1, 3, 8, 13])
def test_a_trace_worked_out_by_hand(decide_all, cut):
    verdicts = decide_all(lambda: LateAcceptance(length=3), [move[:2] for move in TRACE], cut)
    assert [verdict.accepted for verdict in verdicts] == [accepted for *_, accepted in TRACE]


def test_the_memory_follows_a_rising_value_too():
    # Minibatches differ: 9 is what a hard one begins with, not what a move did.
    strategy = LateAcceptance(length=1)
    moves = [(1.0, 1.0), (9.0, 9.0), (5.0, 8.0)]
    assert [strategy.decide(*move, random.Random(0)).accepted for move in moves] == [True] * 3


def test_a_memory_of_one_is_hill_climbing_where_the_value_does_not_change_by_itself():
    late, climbing, rng = LateAcceptance(length=1), HillClimbing(), random.Random(4)
    value, outcomes = 0.5, []
    for _ in range(200):
        new_value = value + rng.uniform(-1, 1)
        verdict = late.decide(value, new_value, rng)
        assert verdict == climbing.decide(value, new_value, rng)
        outcomes.append(verdict.accepted)
        value = new_value if verdict.accepted else value
    assert set(outcomes) == {True, False}


def test_from_an_infeasible_start_whatever_is_finite_is_kept_until_the_memory_is_full():
    strategy = LateAcceptance(length=2)
    moves = [(INF, INF), (INF, 7.0), (7.0, 8.0), (8.0, 9.0)]
    outcomes = [strategy.decide(*move, random.Random(0)).accepted for move in moves]
    assert outcomes == [False, True, True, False]


@pytest.mark.parametrize(
    ("length", "error", "parts"),
    [
        (0, ValueError, ["LateAcceptance(length=...)", "at least 1", "0"]),
        (2.5, TypeError, ["LateAcceptance(length=...)", "whole number", "2.5"]),
    ],
)
def test_bad_input_names_class_argument_rule_and_value(length, error, parts):
    with pytest.raises(error) as caught:
        LateAcceptance(length)
    for part in parts:
        assert part in str(caught.value)
