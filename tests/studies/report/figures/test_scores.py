"""What a page opens on: the score over the rate or by method, on an axis that holds all of it."""

from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.axes import Axes

from annealtune.studies.records import Study
from annealtune.studies.report.figures.scores import fit_score_axis, hero_panel
from annealtune.studies.report.figures.style import blank, style
from annealtune.studies.statistics import Measure, main_measure, statistics_of

ACCURACY = Measure("best", "test", "accuracy")
LOSS = Measure("best", "test", "loss")
RATES = {"a-1e-4": 1e-4, "a-1e-3": 1e-3, "a-1e-2": 1e-2, "a-1": 1.0}
# Of the last epoch; the test accuracy is 0.02 less.
SCORES = {"a-1e-4": 0.92, "a-1e-3": 0.98, "a-1e-2": 0.99, "a-1": 0.12, "self-tuned": 0.985}


def sweep(make_study: Callable[..., Study]) -> Study:
    """AdamW at four rates, and a self-tuned run whose seeds found 0.004 and 0.008."""
    runs: dict[str, dict[int, dict[str, Any]]] = {
        method: {seed: {"accuracy": score + 0.002 * seed} for seed in range(2)}
        for method, score in SCORES.items()
    }
    for seed, run in runs["self-tuned"].items():
        run["metric"] = {"races": [{"rate": 0.1}, {"rate": 0.004 * (seed + 1)}]}
    methods = [
        {"label": label, "config": {"method": "adamw", "adamw": {"lr": rate}}}
        for label, rate in RATES.items()
    ]
    methods.append({"label": "self-tuned", "config": {"method": "self-tuned", "self-tuned": {}}})
    return make_study(runs, methods=methods)


def hero(study: Study) -> tuple[str, str, Axes]:
    """Title, caption and drawing."""
    panel = hero_panel(study, statistics_of(study, main_measure(study)))
    with style():
        return panel.title, panel.caption, panel.draw(blank(panel.height, 9.2))


def test_a_sweep_of_rates_is_a_curve_and_the_others_flat_lines(
    make_study: Callable[..., Study],
) -> None:
    title, _, axes = hero(sweep(make_study))
    assert title == "Test accuracy, best epoch, over the learning rate"
    assert axes.get_xscale() == "log"
    curve = next(line for line in axes.lines if len(line.get_xdata()) == 4)
    assert curve.get_xdata() == pytest.approx([1e-4, 1e-3, 1e-2, 1.0])
    # means over two seeds: 0.001 above the first, 0.02 below the last epoch
    assert curve.get_ydata() == pytest.approx([0.901, 0.961, 0.971, 0.101])
    [legend] = axes.figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == ["adamw: best 97.10 % at 0.01", "self-tuned: 96.60 %"]
    [ticks] = [line for line in axes.lines if line.get_marker() == "|"]
    assert ticks.get_xdata() == pytest.approx([0.004, 0.008])
    assert ticks.get_ydata() == pytest.approx([0.966, 0.966])


def test_each_method_is_a_row_the_best_one_first(make_study: Callable[..., Study]) -> None:
    scores = {"sgd": (0.90, 0.94), "self-tuned": (0.96, 0.98), "adamw": (0.93, 0.95)}
    runs = {m: {s: {"accuracy": each} for s, each in enumerate(v)} for m, v in scores.items()}
    title, _, axes = hero(make_study(runs))
    assert title == "Test accuracy, best epoch, by method"
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["self-tuned", "adamw", "sgd"]
    assert [text.get_text() for text in axes.texts] == ["95.00 %", "92.00 %", "90.00 %"]
    means = [line for line in axes.lines if line.get_marker() == "|"]
    assert [line.get_xdata()[0] for line in means] == pytest.approx([0.95, 0.92, 0.90])


def test_a_method_far_behind_is_within_and_the_others_are_told_apart(
    make_study: Callable[..., Study],
) -> None:
    scores = {"sgd": 0.90, "adamw": 0.96, "scheduled-sgd": 0.98, "random-rate": 0.12}
    _, caption, axes = hero(make_study({m: {0: {"accuracy": s}} for m, s in scores.items()}))
    assert "ratios of the error" in caption
    place = (axes.transScale + axes.transLimits).transform
    dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert dots == pytest.approx([0.96, 0.94, 0.88, 0.10])  # the best first, on the test set
    assert all(0.05 < place((dot, 0))[0] < 0.95 for dot in dots)
    first, second = (place((dot, 0))[0] for dot in dots[:2])
    assert first - second > 0.1  # an even axis would leave 0.02


def test_methods_that_differ_in_more_than_the_rate_are_no_sweep(
    make_study: Callable[..., Study],
) -> None:
    study = sweep(make_study)
    for place, label in enumerate(RATES):
        study.configs[label]["adamw"]["weight_decay"] = 0.1 * place
    assert hero(study)[0] == "Test accuracy, best epoch, by method"


# --- the axis -------------------------------------------------------------------------------------


def fitted(measure: Measure, scores: list[float], axis: Any = "y") -> Axes:
    with style():
        axes = blank()
        axes.plot(scores, scores)
        fit_score_axis(axes, measure, scores, axis)
    return axes


def heights(axes: Axes, scores: list[float]) -> list[float]:
    place = (axes.transScale + axes.transLimits).transform
    return [place((0.5, score))[1] for score in scores]


@pytest.mark.parametrize(
    ("measure", "scores"),
    [
        (ACCURACY, [0.1, 0.95, 0.97]),
        (ACCURACY, [0.5, 1.0]),
        (ACCURACY, [1.0, 1.0]),
        (ACCURACY, [0.0]),
        (LOSS, [0.01, 3.0]),
        (LOSS, [1.0, 1.1]),
        (LOSS, [-1.0, 5.0]),
        (LOSS, [0.0, 0.0]),
    ],
)
def test_every_score_is_within_and_the_better_one_higher(
    measure: Measure, scores: list[float]
) -> None:
    found = heights(fitted(measure, scores), scores)
    assert all(0 <= height <= 1 for height in found)
    ranked = sorted(scores, reverse=not measure.higher_is_better)
    assert heights(fitted(measure, scores), ranked) == sorted(found)
    turned = fitted(measure, scores, "x")
    assert turned.get_xlim() == pytest.approx(fitted(measure, scores).get_ylim())


def test_equal_ratios_of_an_error_or_a_loss_have_equal_lengths() -> None:
    low, middle, high = heights(fitted(ACCURACY, [0.2, 0.98]), [0.6, 0.8, 0.9])
    assert middle - low == pytest.approx(high - middle)
    low, middle, high = heights(fitted(LOSS, [0.01, 1.0]), [0.4, 0.2, 0.1])
    assert middle - low == pytest.approx(high - middle)
    assert fitted(ACCURACY, [0.95, 0.97]).get_yscale() == "linear"


def test_ticks_are_round_and_few() -> None:
    for axis, most in (("y", 8), ("x", 4)):
        axes = fitted(ACCURACY, [0.05, 0.9999], axis)
        ticks = axes.get_yticks() if axis == "y" else axes.get_xticks()
        assert 2 <= len(ticks) <= most
        assert all(round(100 * tick, 4) == pytest.approx(100 * tick) for tick in ticks)
