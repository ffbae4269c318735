"""The Metropolis rule at its edges; against a second one see tests/faults/test_verdicts.py."""

import math

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


def test_the_draw_must_lie_strictly_below_the_probability():
    probability = accept_probability(0.5, 0.5)
    below = math.nextafter(probability, 0.0)
    assert metropolis(1.0, 1.5, 0.5, draw=below) == Verdict(0.5, probability, accepted=True)
    assert metropolis(1.0, 1.5, 0.5, draw=probability) == Verdict(0.5, probability, accepted=False)
