"""Every panel shows the records, says nothing where there are none, and is small and repeatable."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.axes import Axes

from annealtune.studies.records import Study
from annealtune.studies.report.figures import (
    seed_spread,
)
from annealtune.studies.report.figures.gallery import plates
from annealtune.studies.report.figures.panels import Panel, render
from annealtune.studies.report.figures.style import blank, style
from annealtune.studies.statistics.measures import Measure

ACCURACY = Measure("last", "validation", "accuracy")
SVG = "{http://www.w3.org/2000/svg}"


def names(study: Study) -> set[str]:
    return {panel.name for plate in plates(study) for panel in plate.panels}


def draw_all(study: Study) -> dict[str, Axes]:
    """Every panel of a study, laid out as for a file."""
    drawn = {}
    with style():
        for plate in plates(study):
            for panel in plate.panels:
                axes = panel.draw(blank(panel.height))
                axes.figure.set_layout_engine("none")  # takes longest, tested with the files
                axes.figure.draw_without_rendering()
                drawn[panel.name] = axes
    return drawn


def legend_texts(axes: Axes) -> set[str]:
    legend = axes.get_legend()
    return {text.get_text().strip() for text in legend.get_texts()} - {""} if legend else set()


# --- which figures there are ----------------------------------------------------------------------


def test_the_figures_of_the_paper_are_there(three_methods: Study) -> None:
    assert names(three_methods) == {
        "figure-2-accept-probability",
        "figure-2-training-accuracy",
        "figure-3-4-validation-loss",
        "figure-3-4-validation-accuracy",
        "figure-3-4-loss-comparison",
        "figure-3-4-accuracy-comparison",
        "long-probability-decay",
        "long-temperature",
        "long-worsening-moves",
        "settings-1-sgd-sa",
        "settings-3-random-rate",
        "spread-boxes",
        "spread-seeds",
        "spread-deviation",
        "cost-passes",
        "cost-seconds",
    }


def test_figure_1_needs_ssa_and_constant_rate_sgd(make_study: Callable[..., Study]) -> None:
    """Labels are the user's own; what stands behind them decides."""
    study = make_study(
        {"no gradients": {0: {}}, "constant": {0: {}}},
        kinds={"no gradients": "ssa", "constant": "sgd"},
    )
    found = {plate.name: plate for plate in plates(study)}
    assert "Figure 1 of the paper" in found["figure-1"].caption
    assert len(found["figure-1"].panels) == 4
    assert "figure-3-4" not in found  # it would show the same


def test_figure_1_shows_its_pair_among_others(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd-sa": {0: {}}, "ssa": {0: {}}, "sgd": {0: {}}})
    axes = draw_all(study)
    pair = {"ssa (n = 1)", "sgd (n = 1)"}
    assert legend_texts(axes["figure-1-validation-loss"]) == pair
    assert legend_texts(axes["figure-3-4-validation-loss"]) == {"sgd-sa (n = 1)", *pair}


@pytest.mark.parametrize(
    ("data", "model", "figure"),
    [
        ("cifar10", "resnet34-w16", "Figure 3 of the paper (ResNet34 on CIFAR-10), here resnet34-"),
        ("cifar10", "vgg16", "Figure 4 of the paper (VGG16 on CIFAR-10), here vgg16."),
        ("fashion-mnist", "vgg16", "What Figures 3 and 4 of the paper show"),
    ],
)
def test_a_caption_names_the_paper_s_figure(
    make_study: Callable[..., Study], data: str, model: str, figure: str
) -> None:
    study = make_study({"sgd": {0: {}}}, experiment={"data": data, "model": model})
    caption = next(plate.caption for plate in plates(study) if plate.name == "figure-3-4")
    assert caption.startswith(figure)


def test_no_records_no_figures(make_study: Callable[..., Study]) -> None:
    assert plates(make_study({"sgd": {0: None, 1: {"done": 0}}})) == []


def test_an_unfinished_study_shows_its_curves_and_no_scores(
    make_study: Callable[..., Study],
) -> None:
    study = make_study({"sgd-sa": {0: {"done": 2}, 1: {"done": 1, "failure": "killed"}}})
    axes = draw_all(study)
    assert "figure-3-4-validation-loss" in axes
    assert not {"spread-boxes", "cost-passes", "spread-deviation"} & axes.keys()
    [dotted] = axes["figure-3-4-validation-loss"].lines
    assert dotted.get_linestyle() == ":"
    assert legend_texts(axes["figure-3-4-validation-loss"]) == {"sgd-sa (n = 0)"}


@pytest.mark.parametrize(
    "runs",
    [
        {"sgd": {0: {"epochs": 1}}},
        {"sgd-sa": {0: {"loss": None}}, "sgd": {0: {"loss": 1e30}}},
        {"sgd-sa": {0: {"metric": {"epoch": None}}}},
        {"sgd-sa": {0: {"metric": {"temperature": 0.0, "accept_probability": "x"}}}},
        {"sgd-sa": {0: {"metric": {"validation_accuracy": None, "forwards": None}}}},
        {f"method {i}": {s: {} for s in range(2)} for i in range(9)},
    ],
    ids=["one epoch", "no loss", "no epoch", "zero temperature", "no accuracy", "many methods"],
)
def test_odd_records_are_drawn_without_a_word(
    make_study: Callable[..., Study], runs: dict[str, Any]
) -> None:
    kinds = {method: "sgd" for method in runs if method.startswith("method")}
    draw_all(make_study(runs, kinds=kinds))


def test_names_that_matplotlib_would_interpret(make_study: Callable[..., Study]) -> None:
    odd = [
        "a $\\frac{1}$ b",
        "_hidden",
        "tab\there",
        "\N{CJK UNIFIED IDEOGRAPH-6F22}",
        "<b>&amp;",
        "x" * 200,
    ]
    study = make_study({name: {0: {}} for name in odd}, kinds=dict.fromkeys(odd, "sgd"))
    axes = draw_all(study)["figure-3-4-validation-accuracy"]
    shown = {text.removesuffix(" (n = 1)") for text in legend_texts(axes)}
    assert shown >= {"a $\\frac{1}$ b", "_hidden", "tab?here", "?", "<b>&amp;"}
    panel = Panel("odd", "<odd>", lambda axes: seed_spread.boxes(axes, study, ACCURACY))
    ElementTree.fromstring(render(panel).svg)
