"""Every panel shows the records, says nothing where there are none, and is small and repeatable."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from annealtune.studies.figures import annealing, costs, curves, settings, spread
from annealtune.studies.figures.gallery import plates
from annealtune.studies.figures.panels import Panel
from annealtune.studies.figures.saving import render
from annealtune.studies.figures.style import SERIES, blank, label, style
from annealtune.studies.measures import Measure
from annealtune.studies.results import Study

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


def parts(line: Any) -> list[list[float]]:
    """The pieces of a line between its gaps."""
    values = np.asarray(line.get_ydata(), dtype=float)
    pieces = np.split(values, np.flatnonzero(np.isnan(values)))
    return [each for piece in pieces if (each := piece[~np.isnan(piece)].tolist())]


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
    panel = Panel("odd", "<odd>", lambda axes: spread.boxes(axes, study, ACCURACY))
    ElementTree.fromstring(render(panel).svg)


def test_a_label_is_short() -> None:
    assert len(label("x" * 200)) == 36


# --- what they show -------------------------------------------------------------------------------


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


def test_training_is_dashed(three_methods: Study) -> None:
    with style():
        axes = curves.train_against_validation(blank(), three_methods, ["sgd-sa"], "accuracy")
    looks = [each.get_linestyle() for each in axes.lines]
    assert looks == ["--", "--", "-", "-"]
    assert "dashed: training" in axes.get_ylabel()


def test_one_diverged_loss_does_not_flatten_the_others(make_study: Callable[..., Study]) -> None:
    study = make_study({"a": {0: {"loss": 0.3}}, "b": {0: {"loss": 900.0}}}, kinds={"b": "sgd"})
    with style():
        axes = curves.over_epochs(blank(), study, ["a", "b"], "validation_loss", "loss")
        alone = curves.over_epochs(blank(), study, ["a"], "validation_loss", "loss")
    assert (axes.get_yscale(), alone.get_yscale()) == ("log", "linear")


def test_probability_temperature_and_moves(three_methods: Study) -> None:
    drawing = {"study": three_methods, "methods": ["sgd-sa"]}
    with style():
        probability = annealing.probability(blank(), **drawing)
        temperature = annealing.temperature(blank(), **drawing)
        moves = annealing.worsening_moves(blank(), **drawing)
    assert probability.lines[-1].get_ydata() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    warmth = np.asarray(temperature.lines[-1].get_ydata())
    assert np.isnan(warmth[0])  # infinite
    assert warmth[1:] == pytest.approx([1e-2, 1e-3, 1e-4])
    assert temperature.get_yscale() == "log"
    accepted, rejected = moves.lines[1], moves.lines[3]
    assert accepted.get_ydata() == pytest.approx([3, 2, 1, 0])
    assert rejected.get_ydata() == pytest.approx([1, 2, 3, 4])
    assert (accepted.get_linestyle(), rejected.get_linestyle()) == ("-", "--")


def test_the_map_of_settings_by_hand(three_methods: Study) -> None:
    """Each rate is tried 4 times by each of 3 seeds; 0.9 is kept once, 0.5 twice, 0.1 thrice."""
    found = settings.acceptance_map(three_methods.of("sgd-sa"))
    assert found is not None
    assert found.settings == ({"lr": 0.9}, {"lr": 0.5}, {"lr": 0.1})
    assert found.epochs == (1, 2, 3, 4)
    assert found.rates.tolist() == [[0.25] * 4, [0.5] * 4, [0.75] * 4]
    with style():
        axes = settings.draw_acceptance(blank(), found)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0.9", "0.5", "0.1"]
    assert axes.get_ylabel() == "learning rate"


def test_settings_of_several_options_and_gaps(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd-sa": {0: {"done": 1}}})
    [run] = study.runs
    first = {"lr": 0.1, "momentum": 0.9, "nesterov": True}
    second = {"lr": 0.5, "momentum": 0, "nesterov": False}
    lines = (
        {"epoch": 1, "settings": [{"setting": first, "tried": 2, "accepted": 1}]},
        {"epoch": 3, "settings": [{"setting": second, "tried": 4, "accepted": 4}]},
        {"epoch": 4, "settings": [{"setting": second, "tried": 0, "accepted": 0}, "damaged"]},
        {"epoch": -1, "settings": [{"setting": second, "tried": 9, "accepted": 0}]},
        {"settings": None},
    )
    found = settings.acceptance_map([dataclass_replace(run, moves=lines)])
    assert found is not None
    assert found.settings == (second, first)
    expected = [[np.nan, np.nan, 1.0], [0.5, np.nan, np.nan]]
    np.testing.assert_array_equal(found.rates, expected)
    with style():
        axes = settings.draw_acceptance(blank(), found)
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    assert ticks == ["lr 0.5, momentum 0, nesterov no", "lr 0.1, momentum 0.9, nesterov yes"]


def test_settings_with_pairs(make_study: Callable[..., Study]) -> None:
    """Betas come out of JSON as lists."""
    [run] = make_study({"sgd-sa": {0: {"done": 1}}}).runs
    pairs = [{"betas": [0.9, 0.999], "lr": 0.01}, {"betas": [0.8, 0.99], "lr": 0.1}]
    moves = [{"setting": setting, "tried": 2, "accepted": 1} for setting in pairs]
    found = settings.acceptance_map(
        [dataclass_replace(run, moves=({"epoch": 1, "settings": moves},))]
    )
    assert found is not None
    assert found.rates.tolist() == [[0.5], [0.5]]
    with style():
        axes = settings.draw_acceptance(blank(), found)
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    assert ticks == ["betas 0.8 / 0.99, lr 0.1", "betas 0.9 / 0.999, lr 0.01"]


def dataclass_replace(run: Any, **changes: Any) -> Any:
    return type(run)(**{**run.__dict__, **changes})


def test_no_moves_no_map(make_study: Callable[..., Study]) -> None:
    assert settings.acceptance_map(make_study({"sgd": {0: {}}}).runs) is None


def test_boxes_and_points(three_methods: Study) -> None:
    with style():
        axes = spread.boxes(blank(), three_methods, ACCURACY)
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
        axes = spread.by_seed(blank(), study, ACCURACY)
        axes.figure.draw_without_rendering()
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["3", "12"]
    span, plain, other = axes.lines
    assert span.get_ydata() == pytest.approx([0.5, 0.9])
    assert plain.get_ydata() == pytest.approx([0.5, 0.6])
    assert other.get_ydata() == pytest.approx([0.9])


def test_the_deviation_between_seeds(three_methods: Study) -> None:
    with style():
        axes = spread.deviation_over_epochs(blank(), three_methods, three_methods.methods)
    ours, constant, _ = axes.lines
    assert ours.get_ydata() == pytest.approx([0.01] * 4)  # 0.00, 0.01, 0.02 apart, divisor 2
    assert constant.get_ydata() == pytest.approx([0] * 4)


def test_accuracy_against_cost(three_methods: Study) -> None:
    """After an epoch of 5 steps: 10 forwards and 5 backwards cost 20; 5 and 5 cost 15."""
    with style():
        axes = costs.accuracy_against_cost(
            blank(), three_methods, ["sgd-sa", "scheduled-sgd"], "passes"
        )
        timed = costs.accuracy_against_cost(blank(), three_methods, ["sgd-sa"], "seconds")
    ours, ends, plain, _ = axes.lines
    assert ours.get_xdata() == pytest.approx([20, 40, 60, 80])
    assert ours.get_ydata()[-1] == pytest.approx(0.91)
    assert ends.get_xdata() == pytest.approx([80] * 3)
    assert plain.get_xdata() == pytest.approx([15, 30, 45, 60])
    assert timed.lines[0].get_xdata() == pytest.approx([0.5, 1.0, 1.5, 2.0])
