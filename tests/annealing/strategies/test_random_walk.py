"""The random walk, worked out by hand and against simulated annealing at infinite temperature."""

import math
import random

import pytest

from annealtune.annealing import RandomWalk, SimulatedAnnealing, grid

INF, NAN = math.inf, math.nan

TRACE = [
    (5.0, 4.0, True),
    (4.0, 4.5, True),
    (4.5, 4.5, True),
    (4.5, 1e300, True),  # however much worse
    (1e300, 3.0, True),
    (3.0, INF, False),  # nothing leads back from here
    (3.0, NAN, False),
    (3.0, -INF, False),
    (INF, 9.0, True),  # from an infeasible start
    (9.0, 10.0, True),
]


@pytest.mark.parametrize("cut", [None, 6])
def test_a_trace_worked_out_by_hand(decide_all, cut):
    verdicts = decide_all(RandomWalk, [move[:2] for move in TRACE], cut)
    assert [verdict.accepted for verdict in verdicts] == [accepted for *_, accepted in TRACE]
    assert [verdict.accept_probability for verdict in verdicts] == [float(m[2]) for m in TRACE]


def test_it_is_simulated_annealing_at_infinite_temperature_move_for_move():
    neighborhood, source = grid(lr=[0.1, 0.2, 0.3]), random.Random(1)
    ours, other = random.Random(2), random.Random(2)
    walk, annealing = RandomWalk(), SimulatedAnnealing(INF)
    for _ in range(100):
        assert walk.pick(neighborhood, ours) == annealing.pick(neighborhood, other)
        move = source.random(), source.random()
        assert walk.decide(*move, ours) == annealing.decide(*move, other)
    assert walk.temperature == annealing.temperature


def test_it_has_no_options():
    with pytest.raises(TypeError):
        RandomWalk(0.5)
