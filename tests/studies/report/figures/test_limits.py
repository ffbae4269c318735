"""Where an axis ends, by hand."""

import numpy as np
import pytest

from annealtune.studies.report.figures.limits import curve_limits


@pytest.mark.parametrize("is_loss", [True, False])
def test_everything_is_inside(is_loss: bool) -> None:
    curves = [np.linspace(0.5, 0.9, 11), np.array([0.6, 0.1, np.nan, 1.0]), np.array([np.inf])]
    found = curve_limits(curves, may_be_log=is_loss)
    assert found is not None
    assert 0 < 0.1 - found.low < 0.1
    assert 0 < found.high - 1.0 < 0.1
    assert not found.is_log


def test_losses_over_orders_of_magnitude_are_logarithmic() -> None:
    found = curve_limits([np.geomspace(10, 0.001, 20)], may_be_log=True)
    assert found is not None
    assert found.is_log
    assert 0 < found.low < 0.001 < 10 < found.high


@pytest.mark.parametrize("curves", [[], [[]], [[np.nan, np.inf]]])
def test_nothing_to_draw(curves: list[list[float]]) -> None:
    assert curve_limits(map(np.array, curves), may_be_log=True) is None


@pytest.mark.parametrize("value", [0.5, 0.0, -2.0])
def test_one_value_has_an_axis_around_it(value: float) -> None:
    found = curve_limits([np.array([value])], may_be_log=True)
    assert found is not None
    assert found.low < value < found.high
