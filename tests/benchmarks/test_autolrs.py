"""AutoLRS: lengths of its trials, and its forecasts."""

import itertools
import math

import pytest

from benchmarks.quality import autolrs


@pytest.mark.parametrize("steps", [60, 120, 1000, 1200, 2000, 5000])
def test_half_of_the_gradients_are_for_trials(steps):
    lengths = autolrs.trial_lengths(steps)
    assert 0.4 * steps <= 10 * sum(lengths) <= 0.5 * steps
    assert all(b == 2 * a for a, b in itertools.pairwise(lengths))


def test_forecasts_an_exponential():
    losses = [0.5 + 2 * math.exp(-step / 5) for step in range(20)]
    assert autolrs.forecast(losses, 200) == pytest.approx(0.5, abs=1e-2)


def test_forecasts_nothing_from_a_spike():
    losses = [1.0, 90.0, 50.0, 30.0, 20.0, 16.0, 14.0, 13.0]
    assert autolrs.forecast(losses, 80, highest=5.0) == 13.5
    assert autolrs.forecast([1.0, math.nan], 80) == math.inf
