"""How far the seeds lie apart, by hand."""

from collections.abc import Callable

import pytest

from annealtune.studies.records import Study
from annealtune.studies.report.figures import (
    seed_spread,
)
from annealtune.studies.report.figures.style import blank, style
from annealtune.studies.statistics.measures import Measure
from annealtune.studies.statistics.summaries import statistics_of

ACCURACY = Measure("last", "validation", "accuracy")


def test_a_column_a_seed(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd": {3: {"accuracy": 0.5}, 12: {"accuracy": 0.6}}, "adamw": {3: {}}})
    with style():
        axes = seed_spread.by_seed(blank(), study, statistics_of(study, ACCURACY))
        axes.figure.draw_without_rendering()
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["3", "12"]
    span, plain, other = axes.lines
    assert span.get_ydata() == pytest.approx([0.5, 0.9])
    assert plain.get_ydata() == pytest.approx([0.5, 0.6])
    assert other.get_ydata() == pytest.approx([0.9])


def test_a_seed_far_behind_is_within(make_study: Callable[..., Study]) -> None:
    ours, other = {0: {"accuracy": 0.97}, 1: {"accuracy": 0.975}}, {0: {"accuracy": 0.97}}
    study = make_study({"self-tuned": ours, "sgd-sa": other | {1: {"accuracy": 0.917}}})
    with style():
        axes = seed_spread.by_seed(blank(), study, statistics_of(study, ACCURACY))
    low, high = axes.get_ylim()
    assert low < 0.917
    assert high > 0.975


def test_the_deviation_between_seeds(three_methods: Study) -> None:
    with style():
        axes = seed_spread.deviation_over_epochs(blank(), three_methods, "validation_accuracy")
    ours, constant, _ = axes.lines
    assert ours.get_ydata() == pytest.approx([0.01] * 4)  # 0.00, 0.01, 0.02 apart, divisor 2
    assert constant.get_ydata() == pytest.approx([0] * 4)
