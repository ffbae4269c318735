"""The fit of the loss along the rate, against numpy's least squares."""

import json
import math
import random

import numpy as np
import pytest

from annealtune.annealing.parabola import Parabola

INF, NAN = math.inf, math.nan


def learned(measurements, forgetting=0.98):
    fit = Parabola(forgetting)
    for rate, worsening in measurements:
        fit.learn(rate, worsening)
    return fit


def by_numpy(measurements, forgetting=0.98):
    """Fit ``worsening / rate = a + b rate``, the last measurement with the weight 1."""
    rates, worsenings = np.array(measurements).T
    ages = np.arange(len(rates))[::-1]
    if len(set(rates)) == 1:
        return np.average(worsenings / rates, weights=forgetting**ages), 0.0
    # polyfit squares its weights
    b, a = np.polyfit(rates, worsenings / rates, 1, w=forgetting ** (ages / 2))
    return a, b


def noisy(count, seed=0):
    """Measurements that lie on no parabola, over two decades of rates."""
    source = random.Random(seed)
    rates = [10 ** source.uniform(-2, 0) for _ in range(count)]
    return [(rate, source.gauss(-3 * rate + 5 * rate**2, 0.5 * rate)) for rate in rates]


@pytest.mark.parametrize("rates", [(0.1, 0.2), (0.1, 0.2, 0.4, 0.05), (1e-6, 3e-6), (5e3, 1e4)])
@pytest.mark.parametrize(("a", "b"), [(-2.0, 4.0), (-1e-5, 3e7), (0.5, -0.1), (-3.0, 0.0)])
def test_what_lies_on_a_parabola_is_recovered(rates, a, b):
    size = max(abs(a), abs(b) * max(rates))
    fit = learned([(rate, a * rate + b * rate**2) for rate in rates])
    found_a, found_b = fit.coefficients
    assert found_a == pytest.approx(a, abs=1e-9 * size)
    assert found_b * max(rates) == pytest.approx(b * max(rates), abs=1e-9 * size)
    rate = 1.5 * max(rates)
    assert fit.worsening(rate) == pytest.approx(a * rate + b * rate**2, abs=1e-8 * size * rate)


@pytest.mark.parametrize("forgetting", [1.0, 0.98, 0.7])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 200])
def test_what_does_not_is_fitted_as_numpy_does(count, forgetting):
    measurements = noisy(count)
    fit = learned(measurements, forgetting)
    assert fit.coefficients == pytest.approx(by_numpy(measurements, forgetting), rel=1e-6)
    assert fit.measured == count
    assert fit.largest == max(rate for rate, _ in measurements)


def test_old_measurements_are_forgotten():
    old = [(rate, 100 * rate) for rate in (0.1, 0.2) * 50]
    new = [(rate, -2 * rate + 4 * rate**2) for rate in (0.1, 0.2) * 500]
    assert learned(old + new).coefficients == pytest.approx((-2.0, 4.0), rel=1e-4)
    assert learned(old + new, forgetting=1.0).coefficients[0] > 0


def test_one_rate_gives_a_line():
    fit = learned([(0.3, 0.6), (0.3, 1.2)], forgetting=0.5)
    assert fit.coefficients == pytest.approx(((0.5 * 2 + 4) / 1.5, 0.0))
    assert fit.worsening(3.0) == pytest.approx(10.0)
    # The tenth part of a billionth is no second rate: it would make b of rounding errors.
    assert learned([(0.3, 0.6), (0.3 * (1 + 1e-10), 0.9)]).coefficients[1] == 0.0


@pytest.mark.parametrize(
    ("rate", "worsening"), [(0.2, NAN), (0.2, INF), (0.2, -INF), (0.0, 1.0), (-0.1, 1.0)]
)
def test_what_says_nothing_is_ignored(rate, worsening):
    fit = learned(noisy(5))
    before = fit.state_dict()
    fit.learn(rate, worsening)
    assert fit.state_dict() == before


def test_before_the_first_measurement_nothing_is_known():
    fit = Parabola()
    assert [math.isnan(x) for x in (*fit.coefficients, fit.best_rate, fit.worsening(0.1))] == [
        True
    ] * 4
    assert (fit.measured, fit.largest) == (0, 0.0)


@pytest.mark.parametrize(
    ("a", "b", "best"),
    [
        (-2.0, 4.0, 0.25),
        (-1e-3, 1e4, 5e-8),
        (-2.0, 0.0, INF),  # a line: one rate was measured
        (-2.0, -4.0, INF),  # no bottom
        (2.0, 4.0, NAN),  # nothing gains
        (2.0, -4.0, NAN),  # it would, far beyond what was measured: not believed
        (0.0, 4.0, NAN),
    ],
)
def test_the_best_rate_is_that_of_the_bottom(a, b, best):
    rates = (0.25,) if b == 0 else (0.25, 0.5, 1.0)  # exact in binary
    found = learned([(rate, a * rate + b * rate**2) for rate in rates]).best_rate
    assert found == pytest.approx(best, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("cut", [0, 1, 2, 17])
def test_saved_as_json_text_it_continues_the_very_same(cut):
    measurements = noisy(30)
    fit, resumed = learned(measurements[:cut]), Parabola()
    resumed.load_state_dict(json.loads(json.dumps(fit.state_dict())))
    for rate, worsening in measurements[cut:]:
        fit.learn(rate, worsening)
        resumed.learn(rate, worsening)
    assert resumed.state_dict() == fit.state_dict()
    assert resumed.coefficients == fit.coefficients


def test_a_saved_state_does_not_follow_the_fit():
    fit = learned(noisy(5))
    state = fit.state_dict()
    saved = json.dumps(state)
    other = Parabola()
    other.load_state_dict(state)
    fit.learn(0.1, 1.0)
    other.learn(0.2, 1.0)
    assert json.dumps(state) == saved


@pytest.mark.parametrize("scale", [2.0**-30, 2.0**30])
def test_the_unit_of_the_rates_does_not_matter(scale):
    here = learned(noisy(20))
    there = learned([(scale * rate, worsening) for rate, worsening in noisy(20)])
    assert there.best_rate == pytest.approx(scale * here.best_rate, rel=1e-9)
