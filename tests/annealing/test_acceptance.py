"""The Metropolis rule: every edge, and its frequencies against the formula."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annealtune.annealing import Verdict, accept_probability, metropolis

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEMPERATURES = st.floats(min_value=0, allow_nan=False)
SMALLEST = 5e-324
ALMOST_ONE = math.nextafter(1.0, 0.0)  # the largest number that random() returns


@pytest.mark.parametrize(
    ("worsening", "temperature", "expected"),
    [
        (0.5, 0.5, 0.36787944117144233),  # exp(-1), to the last digit
        (1.0, 2.0, 0.6065306597126334),  # exp(-1/2)
        (0.0, 1.0, 1.0),
        (-0.0, 0.0, 1.0),
        (-1.0, 1.0, 1.0),  # clipped, exp(1) is no probability
        (-1000.0, 1.0, 1.0),  # math.exp(1000) would raise
        (-math.inf, 0.0, 1.0),
        (0.0, 0.0, 1.0),  # greedy keeps an equal move
        (SMALLEST, 0.0, 0.0),
        (1.0, 0.0, 0.0),
        (1.0, math.inf, 1.0),
        (1e308, math.inf, 1.0),
        (math.inf, math.inf, 0.0),
        (math.inf, 1.0, 0.0),
        (math.nan, 1.0, 0.0),
        (math.nan, 0.0, 0.0),
        (math.nan, math.inf, 0.0),
        (1000.0, 1.0, 0.0),  # exp underflows
        (1e308, 1e-308, 0.0),  # the quotient overflows
        (1.0, SMALLEST, 0.0),
        (SMALLEST, 1e308, 1.0),  # the quotient underflows
    ],
)
def test_accept_probability_at_its_edges(worsening, temperature, expected):
    assert accept_probability(worsening, temperature) == expected


@given(worsening=st.floats(), temperature=TEMPERATURES)
def test_accept_probability_is_a_probability(worsening, temperature):
    assert 0.0 <= accept_probability(worsening, temperature) <= 1.0


@given(FINITE, FINITE, TEMPERATURES)
def test_a_larger_worsening_is_never_likelier(one, other, temperature):
    smaller, larger = sorted([one, other])
    assert accept_probability(larger, temperature) <= accept_probability(smaller, temperature)


@given(FINITE, TEMPERATURES, TEMPERATURES)
def test_a_higher_temperature_never_accepts_less(worsening, one, other):
    cooler, warmer = sorted([one, other])
    assert accept_probability(worsening, cooler) <= accept_probability(worsening, warmer)


@pytest.mark.parametrize("new_value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("value", [0.0, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0, math.inf])
def test_a_new_value_that_is_not_finite_is_rejected(value, new_value, temperature):
    verdict = metropolis(value, new_value, temperature, draw=0.0)
    assert not verdict.accepted
    assert verdict.accept_probability == 0.0


@pytest.mark.parametrize("temperature", [0.0, 1.0, math.inf])
def test_any_finite_value_is_accepted_from_an_infeasible_point(temperature):
    verdict = metropolis(math.inf, 1e300, temperature, draw=ALMOST_ONE)
    assert verdict == Verdict(-math.inf, 1.0, accepted=True)


@given(value=FINITE, new_value=FINITE, temperature=TEMPERATURES)
def test_improving_and_equal_moves_are_kept_whatever_the_draw(value, new_value, temperature):
    worse, better = max(value, new_value), min(value, new_value)
    assert metropolis(worse, better, temperature, draw=ALMOST_ONE).accepted


def test_the_draw_must_lie_strictly_below_the_probability():
    probability = accept_probability(0.5, 0.5)
    below = math.nextafter(probability, 0.0)
    assert metropolis(1.0, 1.5, 0.5, draw=below) == Verdict(0.5, probability, accepted=True)
    assert metropolis(1.0, 1.5, 0.5, draw=probability) == Verdict(0.5, probability, accepted=False)


def deviation_from(rate):
    """Chi-square of 10 settings with 10,000 draws each, against ``exp(-rate * worsening / T)``."""
    rng = random.Random(2019)
    total = 0.0
    for ratio in (0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0):
        temperature = 0.3
        value = 2.0
        accepted = sum(
            metropolis(value, value + ratio * temperature, temperature, rng.random()).accepted
            for _ in range(10_000)
        )
        expected = math.exp(-rate * ratio)
        total += (accepted - 10_000 * expected) ** 2 / (10_000 * expected * (1 - expected))
    return total


def test_acceptance_frequency_follows_the_formula():
    critical = 29.588  # 99.9 % of the chi-square distribution with 10 degrees of freedom
    assert deviation_from(rate=1.0) < critical
    # The test can fail: three per cent more or less in the exponent is seen.
    assert deviation_from(rate=1.03) > critical
    assert deviation_from(rate=0.97) > critical
