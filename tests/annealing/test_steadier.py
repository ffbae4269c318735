"""The rule that the incumbent stays where no smaller rate is clearly better."""

import statistics

import numpy as np
import pytest

from annealtune.annealing.race import Outcome, Standings

FALLING = [2, 1, 0]  # arm 0 has the smallest rate


def standings_of(*losses):
    standings = Standings(len(losses))
    for minibatch in zip(*losses, strict=True):
        standings.add(dict(enumerate(minibatch)))
    return standings


@pytest.mark.parametrize("seed", range(20))
def test_the_smaller_rate_wins_by_more_than_four_standard_errors_only(seed):
    rng = np.random.default_rng(seed)
    own = rng.normal(2.0, 0.1, 8).tolist()
    ahead = rng.uniform(0, 0.02)
    small = [loss - ahead - noise for loss, noise in zip(own, rng.normal(0, 0.005, 8), strict=True)]
    standings = standings_of(small, own, own)
    differences = [mine - less for mine, less in zip(own[-4:], small[-4:], strict=True)]
    bound = 3 * statistics.median(map(abs, differences))  # outliers count at most as much
    clipped = [max(-bound, min(bound, d)) for d in differences]
    mean, error = statistics.fmean(clipped), statistics.stdev(clipped) / 2
    winner = standings.steadier(Outcome(0, "the best"), 1, FALLING).winner
    assert winner == (0 if mean > 4 * error and mean > 0 else 1)


def test_both_happen_over_these_seeds():
    """A difference of 1 in noise of 0.01 is clear, one of 0.01 in noise of 1 is not."""
    noise = np.random.default_rng(0).normal(0, 1, 8)
    clear = standings_of((-1 + 0.01 * noise).tolist(), [0.0] * 8, [0.0] * 8)
    level = standings_of((-0.01 + noise).tolist(), [0.0] * 8, [0.0] * 8)
    assert clear.steadier(Outcome(0, "the best"), 1, FALLING) == (0, "the best")
    kept = level.steadier(Outcome(0, "the best"), 1, FALLING)
    assert kept == (1, "the incumbent, as no smaller rate is clearly better")


def test_a_larger_rate_and_the_incumbent_itself_are_left_alone():
    level = standings_of([1.0] * 8, [1.0] * 8, [1.0] * 8)
    for winner in (1, 2):
        assert level.steadier(Outcome(winner, "drawn"), 1, FALLING) == (winner, "drawn")


def test_an_incumbent_that_was_dropped_does_not_come_back():
    level = standings_of([1.0] * 8, [1.0] * 8, [1.0] * 8)
    level.drop(1, "clearly worse")
    assert level.steadier(Outcome(0, "the best"), 1, FALLING) == (0, "the best")
