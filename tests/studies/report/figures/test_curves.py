"""Numbers over the epochs: the seeds, their mean, whole axes, and what is left out."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from annealtune.studies.records import Study
from annealtune.studies.report.figures.curves import (
    accept_panels,
    mean_curve,
    over_epochs,
    performance_panels,
    rate_panels,
)
from annealtune.studies.report.figures.panels import Panel
from annealtune.studies.report.figures.settings import acceptance_of, setting_panels
from annealtune.studies.report.figures.style import RAMP, SERIES, blank, looks_of, style

Make = Callable[..., Study]


def drawn(study: Study, key: str, methods: Any = None) -> Axes:
    with style():
        return over_epochs(blank(), study, methods or study.methods, {key: key}, key)


def draw(panel: Panel) -> Axes:
    with style():
        return panel.draw(blank())


def names(axes: Axes) -> list[str]:
    [legend] = axes.figure.legends
    return [text.get_text().strip() for text in legend.get_texts()]


def parts(line: Any) -> list[list[float]]:
    """The pieces of a line between its gaps."""
    values = np.asarray(line.get_ydata(), dtype=float)
    pieces = np.split(values, np.flatnonzero(np.isnan(values)))
    return [each for piece in pieces if (each := piece[~np.isnan(piece)].tolist())]


def test_one_thin_line_a_seed_and_a_thick_mean(three_methods: Study) -> None:
    thin, thick = drawn(three_methods, "validation_loss", ["scheduled-sgd"]).lines
    assert thin.get_linewidth() < thick.get_linewidth()
    assert thin.get_color() == thick.get_color() == SERIES[1]
    # seed s: 0.40 + 0.02 s at the end, 0.1 more for each epoch left, the third epoch 0.2 less
    expected = [[x + 0.02 * s for x in (0.70, 0.60, 0.30, 0.40)] for s in range(3)]
    assert parts(thin) == [pytest.approx(values) for values in expected]
    assert thick.get_ydata() == pytest.approx([0.72, 0.62, 0.32, 0.42])
    assert thick.get_xdata() == pytest.approx([1, 2, 3, 4])


def test_the_mean_is_over_finished_runs_alone(make_study: Make) -> None:
    runs = {0: {"accuracy": 0.9}, 1: {"accuracy": 0.7}, 2: {"accuracy": 0.1, "done": 3}}
    study = make_study({"sgd": runs})
    epochs, mean = mean_curve(study.runs, "validation_accuracy")
    assert epochs.tolist() == [1, 2, 3, 4]
    assert mean[-1] == pytest.approx(0.8)
    axes = drawn(study, "validation_accuracy")
    assert [line.get_linestyle() for line in axes.lines] == ["-", ":", "-"]
    assert names(axes) == ["sgd (2 of 3)"]


def test_there_is_no_mean_where_a_seed_has_no_value(make_study: Make) -> None:
    study = make_study({"sgd": {0: {"loss": 0.5}, 1: {"loss": None}}})
    assert np.isnan(mean_curve(study.runs, "validation_loss")[1]).all()
    key = "worsening_accept_probability"  # null in epochs without such a move
    first, second = make_study({"ssa": {2: {}, 3: {"metric": {key: None}}}}).runs
    assert mean_curve([first, second], key)[1] == pytest.approx([0.5, 0.25, 0.125, 0.0625])


def test_a_diverged_loss_and_a_drop_in_accuracy_are_inside(make_study: Make) -> None:
    study = make_study(
        {"a": {0: {"loss": 0.3}}, "b": {0: {"loss": 900.0}, 1: {"accuracy": 0.2}}},
        kinds={"b": "sgd"},
    )
    axes = drawn(study, "validation_loss")
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    assert low < 0.2 < 900 < high  # a: 0.6, 0.5, 0.2, 0.3
    # The first epoch of seed 1; the mean of the seeds stays above it.
    assert drawn(study, "validation_accuracy").get_ylim()[0] < 0.2 - 0.15


def test_many_methods_have_one_line_each(make_study: Make) -> None:
    methods = [f"method {n}" for n in range(7)]
    study = make_study({m: {0: {}, 1: {}} for m in methods}, kinds=dict.fromkeys(methods, "sgd"))
    few, many = (drawn(study, "validation_loss", methods[:n]) for n in (6, 7))
    assert (len(few.lines), len(many.lines)) == (12, 7)
    assert set(names(many)) == set(methods)


def test_training_is_dotted_beside_validation(three_methods: Study) -> None:
    panels = {p.name: p for p in performance_panels(three_methods, ["sgd-sa"], "curves")}
    axes = draw(panels["curves-training-accuracy"])
    assert [line.get_linestyle() for line in axes.lines] == [":", ":", "-", "-"]


def test_the_accept_test(three_methods: Study) -> None:
    panels = {panel.name: draw(panel) for panel in accept_panels(three_methods)}
    assert all(names(axes)[:2] == ["sgd-sa", "random-rate"] for axes in panels.values())
    assert names(panels["accept-worsening-moves"])[2:] == ["rejected", "accepted"]
    low, high = panels["accept-probability"].get_ylim()
    assert low < 0 < 1 < high
    assert panels["accept-temperature"].get_yscale() == "log"
    moves = [line for line in panels["accept-worsening-moves"].lines if "rej" in line.get_label()]
    assert moves[0].get_ydata() == pytest.approx([1, 2, 3, 4])
    assert accept_panels(dataclasses.replace(three_methods, methods=("scheduled-sgd",))) == []


def test_the_rate_has_a_geometric_mean_and_may_decay(make_study: Make) -> None:
    study = make_study({"adamw": {s: {"metric": {"rate": 0.01 * 4**s}} for s in (0, 1)}})
    axes = drawn(study, "rate")
    assert axes.lines[-1].get_ydata() == pytest.approx([0.02] * 4)
    assert axes.get_yscale() == "log"
    [first, _] = study.runs
    lines = tuple({"epoch": e, "rate": 0.1**e * (e < 8) * 0.1**e} for e in range(1, 9))
    decayed = dataclasses.replace(study, runs=(dataclasses.replace(first, metrics=lines),))
    low, high = drawn(decayed, "rate").get_ylim()
    assert low == pytest.approx(0.01 / 300)
    assert high == pytest.approx(0.015)
    assert rate_panels(make_study({"sgd": {1: {}}})) == []


def test_looks_differ_and_a_sweep_of_rates_is_a_ramp(make_study: Make) -> None:
    looks = looks_of(make_study({f"m{n}": {0: None} for n in range(16)}))
    assert [look.colour for look in looks.values()] == list(SERIES)
    assert len({str(look.dashes) for look in looks.values()}) == 3
    methods = [
        {"label": f"a{n}", "config": {"method": "adamw", "adamw": {"lr": 10.0**-n}}}
        for n in range(5)
    ]
    methods.append({"label": "sgd", "config": {"method": "sgd"}})
    study = make_study({each["label"]: {0: None} for each in methods}, methods=methods)
    looks = looks_of(study)
    assert [looks[f"a{n}"].colour for n in range(4, -1, -1)] == list(RAMP[::2])
    assert looks["sgd"].colour == SERIES[0]


# --- which settings were accepted when ---


def test_the_map_of_settings_by_hand(three_methods: Study) -> None:
    """Each rate is tried 4 times by each of 3 seeds; 0.9 is kept once, 0.5 twice, 0.1 thrice."""
    settings, rates = acceptance_of(three_methods.of("sgd-sa"))
    assert settings == [{"lr": 0.9}, {"lr": 0.5}, {"lr": 0.1}]
    assert rates.tolist() == [[0.25] * 4, [0.5] * 4, [0.75] * 4]
    first, other = setting_panels(three_methods)
    assert (first.name, other.name) == ("settings-1", "settings-3")  # scheduled-sgd has no moves
    axes = draw(first)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0.9", "0.5", "0.1"]


def test_settings_of_several_options_and_gaps(make_study: Make) -> None:
    [run] = make_study({"sgd-sa": {0: {"done": 1}}}).runs
    first = {"betas": [0.9, 0.999], "lr": 0.1, "nesterov": True}
    second = {"betas": [0.8, 0.99], "lr": 0.5, "nesterov": False}
    lines = (
        {"epoch": 1, "settings": [{"setting": first, "tried": 2, "accepted": 1}]},
        {"epoch": 3, "settings": [{"setting": second, "tried": 4, "accepted": 4}]},
    )
    settings, rates = acceptance_of([dataclasses.replace(run, moves=lines)])
    np.testing.assert_array_equal(rates, [[np.nan, np.nan, 1.0], [0.5, np.nan, np.nan]])
    assert [setting["lr"] for setting in settings] == [0.5, 0.1]
