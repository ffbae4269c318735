"""Every panel shows the records, says nothing where there are none, and is small and repeatable."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from annealtune.studies.records import Study, read_study
from annealtune.studies.report.figures import curves
from annealtune.studies.report.figures.gallery import plates
from annealtune.studies.report.figures.panels import Panel, Plate, render
from annealtune.studies.report.figures.style import blank, style
from annealtune.studies.statistics.summaries import study_statistics

KEY = "validation_loss"


def names(study: Study) -> set[str]:
    return {panel.name for plate in plates_of(study) for panel in plate.panels}


def draw_all(study: Study) -> dict[str, Axes]:
    """Every panel of a study, laid out as for a file."""
    drawn = {}
    with style():
        for plate in plates_of(study):
            for panel in plate.panels:
                axes = panel.draw(blank(panel.height))
                axes.figure.set_layout_engine("none")  # takes longest, tested with the files
                axes.figure.draw_without_rendering()
                drawn[panel.name] = axes
    return drawn


def labels(axes: Axes) -> set[str]:
    """The names at the ends of lines."""
    return {text.get_text().strip() for text in axes.texts}


def plates_of(study: Study) -> list[Plate]:
    return plates(study, study_statistics(study))


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


# --- which figures there are ----------------------------------------------------------------------


def test_which_figures_there_are(three_methods: Study) -> None:
    assert names(three_methods) == {
        "curves-validation-loss",
        "curves-validation-accuracy",
        "curves-loss-comparison",
        "curves-accuracy-comparison",
        "accept-probability",
        "accept-worsening",
        "accept-temperature",
        "accept-worsening-moves",
        "settings-1-sgd-sa",
        "settings-3-random-rate",
        "spread-seeds",
        "spread-deviation",
        "cost-passes",
    }


def test_figure_1_needs_ssa_and_constant_rate_sgd(make_study: Callable[..., Study]) -> None:
    """Labels are the user's own; what stands behind them decides."""
    study = make_study(
        {"no gradients": {0: {}}, "constant": {0: {}}},
        kinds={"no gradients": "ssa", "constant": "sgd"},
        name="regime-fashion-mnist-ssa",
    )
    found = {plate.name: plate for plate in plates_of(study)}
    assert "Figure 1 of the paper" in found["figure-1"].caption
    assert len(found["figure-1"].panels) == 4
    assert "curves" not in found  # it would show the same


def test_figure_1_shows_its_pair_among_others(make_study: Callable[..., Study]) -> None:
    study = make_study(
        {"sgd-sa": {0: {}}, "ssa": {0: {}}, "sgd": {0: {}}}, name="paper-cifar10-vgg16"
    )
    axes = draw_all(study)
    assert labels(axes["figure-1-validation-loss"]) == {"ssa", "sgd"}
    assert labels(axes["curves-validation-loss"]) == {"sgd-sa", "ssa", "sgd"}


@pytest.mark.parametrize(
    ("name", "data", "model", "figure"),
    [
        (
            "paper-cifar10-resnet34",
            "cifar10",
            "resnet34-w16",
            "Figure 3 of the paper (ResNet34 on CIFAR-10), here resnet34-",
        ),
        (
            "small-cifar10-vgg16-init-seed",
            "cifar10",
            "vgg16",
            "Figure 4 of the paper (VGG16 on CIFAR-10), here vgg16.",
        ),
        ("paper-cifar10-vgg16", "fashion-mnist", "vgg16", "What Figures 3 and 4 of the paper show"),
        ("my-own", "cifar10", "vgg16", "Lines: "),
    ],
)
def test_a_caption_names_the_paper_s_figure(
    make_study: Callable[..., Study], name: str, data: str, model: str, figure: str
) -> None:
    study = make_study({"sgd": {0: {}}}, experiment={"data": data, "model": model}, name=name)
    caption = next(plate.caption for plate in plates_of(study) if plate.name == "curves")
    assert caption.startswith(figure)


def test_a_map_of_one_colour_is_a_sentence(make_study: Callable[..., Study]) -> None:
    study = make_study({"random-rate": {0: {}}})
    lines = [
        {"epoch": 1, "settings": [{"setting": {"lr": r}, "tried": 3, "accepted": 3}]}
        for r in (0.1, 0.2)
    ]
    write_lines(study.runs[0].path / "moves.jsonl", lines)
    [plate] = [p for p in plates_of(read_study(study.path)) if p.name == "settings"]
    assert plate.panels == ()
    assert plate.caption == (
        "Every setting was accepted equally often, in every epoch: random-rate (100 %)."
    )


def test_rates_that_never_change_are_a_sentence(make_study: Callable[..., Study]) -> None:
    steady: dict[str, Any] = {"sgd": {s: {"metric": {"rate": 0.1}} for s in range(2)}}
    [sentence, *_] = plates_of(make_study(steady))
    assert (sentence.name, sentence.panels) == ("rates", ())
    assert sentence.caption == "Constant from first to last epoch: sgd 0.1."


def test_rates_that_change_are_a_figure(make_study: Callable[..., Study]) -> None:
    found: dict[str, Any] = {"sgd": {s: {"metric": {"rate": 0.1 + s}} for s in range(2)}}
    assert "rates" in names(make_study(found))


def test_no_records_no_figures(make_study: Callable[..., Study]) -> None:
    assert plates_of(make_study({"sgd": {0: None, 1: {"done": 0}}})) == []


def test_an_unfinished_study_shows_its_curves_and_no_scores(
    make_study: Callable[..., Study],
) -> None:
    study = make_study({"sgd-sa": {0: {"done": 2}, 1: {"done": 1, "failure": "killed"}}})
    axes = draw_all(study)
    assert not {"spread-seeds", "cost-passes", "spread-deviation"} & axes.keys()
    [dotted] = axes["curves-validation-loss"].lines
    assert dotted.get_linestyle() == ":"
    assert labels(axes["curves-validation-loss"]) == {"sgd-sa (0 of 2)"}


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
    axes = draw_all(study)["curves-validation-accuracy"]
    assert labels(axes) >= {"a $\\frac{1}$ b", "_hidden", "tab?here", "?", "<b>&amp;"}
    panel = Panel("odd", "<odd>", lambda axes: curves.over_epochs(axes, study, odd, KEY, "loss"))
    drawing = render(panel)
    ElementTree.fromstring(drawing.svg)
    ElementTree.fromstring(drawing.inline)


@pytest.mark.parametrize("has_plain", [False, True])
def test_the_caption_says_which_rates_are_means(
    make_study: Callable[..., Study], has_plain: bool
) -> None:
    moved = {"acceptance_rate": 0.5}
    runs: dict[str, Any] = {"sgd-sa": {s: {"metric": {**moved, "rate": 0.3 + s}} for s in (0, 1)}}
    if has_plain:
        runs["sgd"] = {s: {"metric": {"rate": 0.1}} for s in (0, 1)}
    caption = plates_of(make_study(runs))[0].caption
    assert ("The rate at the end of each epoch" in caption) == has_plain
    assert "Of methods over H (sgd-sa): the mean of the accepted moves." in caption
