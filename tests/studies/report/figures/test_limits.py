"""Where an axis ends, by hand."""

import numpy as np
import pytest

from annealtune.studies.report.figures.limits import curve_limits


def test_the_better_half_decides() -> None:
    good, better = np.linspace(0.5, 0.9, 11), np.linspace(0.6, 1.0, 11)
    curves = {"good": good, "better": better, "lost": np.full(11, -0.9)}
    found = curve_limits(curves, higher_is_better=True)
    assert found is not None
    # A tenth of the 22 values of the better two: the percentile lies between 0.54 and 0.58.
    assert 0.4 < found.low < 0.54
    assert 1.0 < found.high < 1.05
    assert found.is_cut
    assert found.beyond == ("lost",)


def test_what_is_not_so_far_off_is_seen() -> None:
    curves = {"good": np.linspace(0.5, 0.9, 11), "worse": np.linspace(0.1, 0.3, 11)}
    found = curve_limits(curves, higher_is_better=True)
    assert found is not None
    assert found.low < 0.1
    assert not found.is_cut


def test_a_bad_start_is_cut_and_its_method_is_seen() -> None:
    """The better one falls from 2 to 1; the other starts at 90 and settles at 3."""
    late = np.array([90.0, 50.0, 20.0, 3.0, 3.0, 3.0])
    curves = {"good": np.linspace(2, 1, 6), "late": late}
    found = curve_limits(curves, higher_is_better=False)
    assert found is not None
    assert 3 < found.high < 4
    assert found.is_cut
    assert found.beyond == ()


def test_nothing_is_cut_where_all_fit() -> None:
    curves = {"a": np.array([3.0, 2.0, 1.0]), "b": np.array([3.1, 2.1, 1.1])}
    found = curve_limits(curves, higher_is_better=False)
    assert found is not None
    assert found.low < 1.0
    assert found.beyond == ()
    assert not found.is_log


def test_losses_over_orders_of_magnitude_are_logarithmic() -> None:
    found = curve_limits({"a": np.geomspace(10, 0.001, 20)}, higher_is_better=False)
    assert found is not None
    assert found.is_log
    assert 0 < found.low < 0.001


@pytest.mark.parametrize("values", [[], [np.nan, np.inf]])
def test_nothing_to_draw(values: list[float]) -> None:
    assert curve_limits({"a": np.array(values)}, higher_is_better=True) is None


def test_one_value_has_an_axis_around_it() -> None:
    found = curve_limits({"a": np.array([0.5])}, higher_is_better=True)
    assert found is not None
    assert found.low < 0.5 < found.high
