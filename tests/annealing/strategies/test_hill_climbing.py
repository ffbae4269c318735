"""Hill climbing, worked out by hand and against simulated annealing at temperature 0."""

import math
import random

import pytest

from annealtune.annealing import HillClimbing, SimulatedAnnealing, grid

INF, NAN = math.inf, math.nan

TRACE = [
    (5.0, 4.0, True),
    (4.0, 4.5, False),
    (4.0, 4.0, True),  # equal
    (4.0, 3.0, True),
    (3.0, math.nextafter(3.0, INF), False),  # the smallest worsening that there is
    (3.0, math.nextafter(3.0, 0.0), True),
    (3.0, INF, False),
    (3.0, NAN, False),
    (3.0, -INF, False),  # a broken point, not a good one
    (INF, 9.0, True),  # from an infeasible start
    (-1.0, -2.0, True),
    (-2.0, -1.0, False),
]


@pytest.mark.parametrize("cut", [None, 6])
def test_a_trace_worked_out_by_hand(decide_all, cut):
    verdicts = decide_all(HillClimbing, [move[:2] for move in TRACE], cut)
    assert [verdict.accepted for verdict in verdicts] == [accepted for *_, accepted in TRACE]


def test_it_is_simulated_annealing_at_temperature_zero_move_for_move():
    neighborhood, source = grid(lr=[0.1, 0.2, 0.3]), random.Random(1)
    ours, other = random.Random(2), random.Random(2)
    climbing, annealing = HillClimbing(), SimulatedAnnealing(0.0)
    for _ in range(100):
        assert climbing.pick(neighborhood, ours) == annealing.pick(neighborhood, other)
        move = source.random(), source.random()
        assert climbing.decide(*move, ours) == annealing.decide(*move, other)
    assert climbing.temperature == annealing.temperature


def test_it_has_no_options():
    with pytest.raises(TypeError):
        HillClimbing(0.5)
