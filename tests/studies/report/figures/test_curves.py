"""A number over the epochs: the seeds, their mean, and what is left out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from annealtune.studies.records import Study
from annealtune.studies.report.figures import (
    curves,
)
from annealtune.studies.report.figures.style import SERIES, blank, style


def parts(line: Any) -> list[list[float]]:
    """The pieces of a line between its gaps."""
    values = np.asarray(line.get_ydata(), dtype=float)
    pieces = np.split(values, np.flatnonzero(np.isnan(values)))
    return [each for piece in pieces if (each := piece[~np.isnan(piece)].tolist())]


def test_one_thin_line_a_seed_and_a_thick_mean(three_methods: Study) -> None:
    with style():
        axes = curves.over_epochs(
            blank(), three_methods, ["scheduled-sgd"], "validation_loss", "validation loss"
        )
    thin, thick = axes.lines
    assert thin.get_linewidth() < thick.get_linewidth()
    assert thin.get_color() == thick.get_color() == SERIES[1]
    # seed s: 0.40 + 0.02 s at the end, 0.1 more for each epoch left, the third epoch 0.2 less
    expected = [
        [0.70 + 0.02 * s, 0.60 + 0.02 * s, 0.30 + 0.02 * s, 0.40 + 0.02 * s] for s in range(3)
    ]
    assert parts(thin) == [pytest.approx(values) for values in expected]
    assert thick.get_ydata() == pytest.approx([0.72, 0.62, 0.32, 0.42])
    assert thick.get_xdata() == pytest.approx([1, 2, 3, 4])


def test_the_mean_is_over_finished_runs_alone(make_study: Callable[..., Study]) -> None:
    study = make_study(
        {"sgd": {0: {"accuracy": 0.9}, 1: {"accuracy": 0.7}, 2: {"accuracy": 0.1, "done": 3}}}
    )
    epochs, mean = curves.mean_curve(study.runs, "validation_accuracy")
    assert epochs.tolist() == [1, 2, 3, 4]
    assert mean[-1] == pytest.approx(0.8)


def test_there_is_no_mean_where_a_seed_has_no_value(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd": {0: {"loss": 0.5}, 1: {"loss": None}}})
    assert np.isnan(curves.mean_curve(study.runs, "validation_loss")[1]).all()
    known = curves.mean_curve(study.runs, "validation_loss", over_known=True)[1]
    assert known == pytest.approx([0.8, 0.7, 0.4, 0.5])


def test_training_is_dotted(three_methods: Study) -> None:
    with style():
        axes = curves.train_against_validation(blank(), three_methods, ["sgd-sa"], "accuracy")
    looks = [each.get_linestyle() for each in axes.lines]
    assert looks == [":", ":", "-", "-"]
    assert "dotted: training" in axes.get_ylabel()


def test_a_diverged_loss_is_seen_beside_the_others(make_study: Callable[..., Study]) -> None:
    study = make_study({"a": {0: {"loss": 0.3}}, "b": {0: {"loss": 900.0}}}, kinds={"b": "sgd"})
    with style():
        axes = curves.over_epochs(blank(), study, ["a", "b"], "validation_loss", "loss")
    # a: 0.6, 0.5, 0.2, 0.3
    low, high = axes.get_ylim()
    assert low < 0.2
    assert high > 900
    assert axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.texts] == ["a", "b"]


def test_the_drop_of_one_seed_is_inside(make_study: Callable[..., Study]) -> None:
    """The mean of the seeds stays above it."""
    study = make_study({"a": {0: {"accuracy": 0.9}, 1: {"accuracy": 0.4}}}, kinds={"a": "sgd"})
    with style():
        axes = curves.over_epochs(blank(), study, ["a"], "validation_accuracy", "accuracy")
    assert axes.get_ylim()[0] < 0.4 - 0.15  # the first epoch of seed 1


def test_many_methods_have_one_line_each(make_study: Callable[..., Study]) -> None:
    names = [f"method {n}" for n in range(7)]
    study = make_study({m: {0: {}, 1: {}} for m in names}, kinds=dict.fromkeys(names, "sgd"))
    with style():
        few = curves.over_epochs(blank(), study, names[:6], "validation_loss", "loss")
        many = curves.over_epochs(blank(), study, names, "validation_loss", "loss")
    assert (len(few.lines), len(many.lines)) == (12, 7)
    assert {text.get_text() for text in many.texts} == set(names)


def test_the_values_of_the_mean_can_be_read(three_methods: Study) -> None:
    with style():
        axes = blank()
        curves.over_epochs(axes, three_methods, ["sgd-sa"], "validation_accuracy", "accuracy")
    [series] = axes.figure.series
    assert series.name == "sgd-sa"
    assert series.texts[-1] == "epoch 4: 91.00 %, mean of 3"
