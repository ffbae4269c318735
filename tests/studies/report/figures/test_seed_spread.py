"""How far the seeds lie apart, by hand."""

from collections.abc import Callable

import pytest

from annealtune.studies.records import Study
from annealtune.studies.report.figures import (
    seed_spread,
)
from annealtune.studies.report.figures.style import blank, style
from annealtune.studies.statistics.measures import Measure

ACCURACY = Measure("last", "validation", "accuracy")


def test_boxes_and_points(three_methods: Study) -> None:
    with style():
        axes = seed_spread.boxes(blank(), three_methods, ACCURACY)
    first = axes.patches[0]  # sgd-sa: 0.90, 0.91, 0.92
    assert first.get_x() == pytest.approx(0.905)
    assert first.get_width() == pytest.approx(0.01)
    whole, median, points = axes.lines[:3]
    assert whole.get_xdata() == pytest.approx([0.90, 0.92])
    assert median.get_xdata() == pytest.approx([0.91, 0.91])
    assert sorted(points.get_xdata()) == pytest.approx([0.90, 0.91, 0.92])
    assert len(set(points.get_ydata())) == 3


def test_a_column_a_seed(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd": {3: {"accuracy": 0.5}, 12: {"accuracy": 0.6}}, "adamw": {3: {}}})
    with style():
        axes = seed_spread.by_seed(blank(), study, ACCURACY)
        axes.figure.draw_without_rendering()
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["3", "12"]
    span, plain, other = axes.lines
    assert span.get_ydata() == pytest.approx([0.5, 0.9])
    assert plain.get_ydata() == pytest.approx([0.5, 0.6])
    assert other.get_ydata() == pytest.approx([0.9])


def test_the_deviation_between_seeds(three_methods: Study) -> None:
    with style():
        axes = seed_spread.deviation_over_epochs(blank(), three_methods)
    ours, constant, _ = axes.lines
    assert ours.get_ydata() == pytest.approx([0.01] * 4)  # 0.00, 0.01, 0.02 apart, divisor 2
    assert constant.get_ydata() == pytest.approx([0] * 4)
