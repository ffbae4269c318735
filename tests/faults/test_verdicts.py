"""Millions of verdicts of the Metropolis rule against one written a second time, with numpy."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from annealtune.annealing import metropolis

# From the smallest numbers to the largest: sixty decades and more of losses and temperatures.
VALUES = np.array([0.0, -0.0, 1.0, -1.0, 5e-324, 1e-30, -1e-30, 1e30, -1e30, 1.7e308, -1.7e308])
BROKEN = np.array([math.nan, math.inf, -math.inf])
TEMPERATURES = np.array([0.0, 5e-324, 1e-300, 1e-30, 1e-3, 1.0, 1e3, 1e30, 1e300, math.inf])


def drawn(rng, count):
    """Values, new values, temperatures and draws: half of the moves within reach of their T."""
    temperatures = np.where(
        rng.random(count) < 0.5,
        10.0 ** rng.uniform(-300, 300, count),
        rng.choice(TEMPERATURES, count),
    )
    scale = 10.0 ** rng.uniform(-30, 30, count)
    values = np.where(rng.random(count) < 0.9, scale * rng.normal(size=count), 0.0)
    values = np.where(rng.random(count) < 0.05, rng.choice(VALUES, count), values)
    values = np.where(rng.random(count) < 0.02, rng.choice(BROKEN, count), values)
    near = np.where(np.isfinite(temperatures), temperatures, scale) * rng.normal(size=count)
    new_values = values + np.where(rng.random(count) < 0.5, near, scale * rng.normal(size=count))
    new_values = np.where(rng.random(count) < 0.05, rng.choice(VALUES, count), new_values)
    new_values = np.where(rng.random(count) < 0.05, rng.choice(BROKEN, count), new_values)
    return values, new_values, temperatures, rng.random(count)


def reference(values, new_values, temperatures, draws):
    """Equation 1 with its edges: which moves are kept."""
    worsening = new_values - values
    is_warm = temperatures > 0
    ratio = np.divide(worsening, temperatures, out=np.full_like(worsening, np.inf), where=is_warm)
    better = worsening <= 0
    kept = better | ((worsening < np.inf) & is_warm & (draws < np.exp(-np.maximum(ratio, 0.0))))
    return np.isfinite(new_values) & kept


def compare(seed, count):
    rng = np.random.default_rng(seed)
    cases = drawn(rng, count)
    with np.errstate(all="ignore"):
        expected = reference(*cases)
    columns = [column.tolist() for column in cases]
    verdicts = [metropolis(*case) for case in zip(*columns, strict=True)]
    accepted = np.array([verdict.accepted for verdict in verdicts])
    wrong = np.flatnonzero(accepted != expected)
    # exp may differ in its last bit between libraries: only where the draw falls between the two.
    for index in wrong:
        value, new_value, temperature, draw = (column[index] for column in columns)
        assert math.isclose(draw, math.exp(-(new_value - value) / temperature), rel_tol=1e-14)
    assert len(wrong) <= 2
    assert not accepted[~np.isfinite(cases[1])].any()
    probabilities = np.array([verdict.accept_probability for verdict in verdicts])
    assert ((probabilities >= 0) & (probabilities <= 1)).all()


def check_frequencies(seed, count):
    """How often each of 20 moves is kept lies within 1 - 1e-9 of its binomial distribution."""
    rng = np.random.default_rng(seed)
    for ratio in np.geomspace(1e-3, 10.0, 20):
        temperature = 10.0 ** rng.uniform(-290, 290)
        value, new_value = 0.0, float(ratio * temperature)
        draws = rng.random(count).tolist()
        accepted = sum(metropolis(value, new_value, temperature, u).accepted for u in draws)
        low, high = binom.interval(1 - 1e-9, count, math.exp(-ratio))
        assert low <= accepted <= high


def test_a_sample():
    compare(seed=0, count=200_000)
    check_frequencies(seed=1, count=10_000)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_million(part):
    compare(seed=100 + part, count=800_000)
    check_frequencies(seed=200 + part, count=10_000)


def test_the_comparison_can_fail():
    cases = drawn(np.random.default_rng(0), 10_000)
    with np.errstate(all="ignore"):
        expected = reference(*cases)
        warmer = reference(cases[0], cases[1], 1.03 * cases[2], cases[3])
    assert (expected != warmer).any()
    assert expected.any()
    assert not expected.all()
