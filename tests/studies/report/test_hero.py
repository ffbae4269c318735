"""What a page opens on: which figure, the sentence above it, what is cut off."""

from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.axes import Axes

from annealtune.studies.records import Study
from annealtune.studies.report.figures.style import blank, style
from annealtune.studies.report.hero import Hero, hero_of
from annealtune.studies.statistics.summaries import study_statistics

RATES = {"a-1e-4": 1e-4, "a-1e-3": 1e-3, "a-1e-2": 1e-2, "a-1": 1.0}
# Of the last epoch; the test accuracy is 0.02 less.
SCORES = {"a-1e-4": 0.92, "a-1e-3": 0.98, "a-1e-2": 0.99, "a-1": 0.12, "self-tuned": 0.985}


def sweep(make_study: Callable[..., Study], **options: Any) -> Study:
    """AdamW at four rates, and a self-tuned run whose seeds found 0.004 and 0.008."""
    runs: dict[str, dict[int, dict[str, Any]]] = {
        method: {seed: {"accuracy": score + 0.002 * seed} for seed in range(2)}
        for method, score in SCORES.items()
    }
    for seed, run in runs["self-tuned"].items():
        run["metric"] = {"races": [{"rate": 0.1}, {"rate": 0.004 * (seed + 1)}]}
    methods = [
        {"label": label, "config": {"method": "adamw", "adamw": {"lr": rate} | options}}
        for label, rate in RATES.items()
    ]
    methods.append({"label": "self-tuned", "config": {"method": "self-tuned", "self-tuned": {}}})
    return make_study(runs, methods=methods)


def hero(study: Study) -> Hero:
    found = hero_of(study, study_statistics(study))
    assert found is not None
    return found


def drawn(study: Study, width: float = 9.2) -> Axes:
    found = hero(study)
    with style():
        return found.panel.draw(blank(found.panel.height, width))


def test_a_sweep_of_rates_is_a_curve_and_the_others_flat_lines(
    make_study: Callable[..., Study],
) -> None:
    study = sweep(make_study)
    found = hero(study)
    # means over two seeds: 0.001 above the first, 0.02 below the last epoch
    assert found.headline == (
        "self-tuned, given no rate, reached 96.60 % test accuracy; adamw reached 97.10 % at its "
        "best rate, 0.01, and 10.10 % at its worst, 1."
    )
    assert found.panel.title == "Test accuracy, best epoch, over the learning rate"
    axes = drawn(study)
    assert axes.get_xscale() == "log"
    curve = next(line for line in axes.lines if len(line.get_xdata()) == 4)
    assert curve.get_xdata() == pytest.approx([1e-4, 1e-3, 1e-2, 1.0])
    assert curve.get_ydata() == pytest.approx([0.901, 0.961, 0.971, 0.101])
    texts = {text.get_text() for text in axes.texts}
    assert {"97.10 %", "self-tuned 96.60 %"} <= texts


def test_every_rate_is_seen_and_errors_are_told_apart_by_their_ratio(
    make_study: Callable[..., Study],
) -> None:
    study = sweep(make_study)
    axes = drawn(study)
    low, high = axes.get_ylim()
    assert low < 0.1
    assert 0.973 < high < 1
    place = (axes.transScale + axes.transLimits).transform
    height = [place((1, accuracy))[1] for accuracy in (0.6, 0.8, 0.9)]
    assert height[1] - height[0] == pytest.approx(height[2] - height[1])
    assert "Equal lengths are equal ratios of the error." in hero(study).caption


def test_the_rates_found_are_ticks_on_the_line(make_study: Callable[..., Study]) -> None:
    study = sweep(make_study)
    axes = drawn(study)
    [ticks] = [line for line in axes.lines if line.get_marker() == "|"]
    assert ticks.get_xdata() == pytest.approx([0.004, 0.008])
    assert ticks.get_ydata() == pytest.approx([0.966, 0.966])
    told = {text for s in axes.figure.series for text in s.texts if s.name == "self-tuned"}
    assert "seed 1: 96.70 %,\nfound the rate 0.008" in told


def test_on_a_phone_the_key_has_the_names(make_study: Callable[..., Study]) -> None:
    axes = drawn(sweep(make_study), width=4.6)
    assert "96.60 %" in {text.get_text() for text in axes.texts}
    keys = {text.get_text().strip() for text in axes.get_legend().get_texts()}
    assert {"adamw, a fixed rate each", "self-tuned, given no rate"} <= keys


def test_losses_are_turned_so_that_better_is_up(make_study: Callable[..., Study]) -> None:
    methods = [
        {"label": label, "config": {"method": "adamw", "adamw": {"lr": rate}}}
        for label, rate in RATES.items()
    ]
    losses = dict(zip(RATES, (0.5, 0.3, 0.2, 9.0), strict=True))
    runs = {label: {0: {"accuracy": None, "loss": loss}} for label, loss in losses.items()}
    study = make_study(runs, methods=methods)
    low, high = drawn(study).get_ylim()
    assert low > 9.05  # the worst of all, and 0.05 more on the test set
    assert 0.15 < high < 0.25
    assert hero(study).headline == (
        "adamw reached 0.2500 test loss at its best rate, 0.01, and 9.0500 at its worst, 1."
    )


def test_each_method_is_a_row_the_best_one_first(make_study: Callable[..., Study]) -> None:
    study = make_study(
        {
            "sgd": {0: {"accuracy": 0.90}, 1: {"accuracy": 0.94}},
            "self-tuned": {0: {"accuracy": 0.96}, 1: {"accuracy": 0.98}},
            "adamw": {0: {"accuracy": 0.93}, 1: {"accuracy": 0.95}},
        }
    )
    found = hero(study)
    assert found.headline.startswith("self-tuned came first with 95.00 % test accuracy")
    assert "Dashed line: the mean of adamw, the best method that tunes nothing." in found.caption
    axes = drawn(study)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["self-tuned", "adamw", "sgd"]
    assert [text.get_text() for text in axes.texts] == ["95.00 %", "92.00 %", "90.00 %"]
    baseline = axes.lines[0]
    assert baseline.get_xdata() == pytest.approx([0.92, 0.92])
    means = [line for line in axes.lines if line.get_marker() == "|"]
    assert [line.get_xdata()[0] for line in means] == pytest.approx([0.95, 0.92, 0.90])


def test_a_method_far_behind_is_within_and_the_others_are_told_apart(
    make_study: Callable[..., Study],
) -> None:
    scores = {"sgd": 0.90, "adamw": 0.96, "scheduled-sgd": 0.98, "random-rate": 0.12}
    study = make_study({m: {0: {"accuracy": score}} for m, score in scores.items()})
    assert "Equal lengths are equal ratios of the error." in hero(study).caption
    axes = drawn(study)
    place = (axes.transScale + axes.transLimits).transform
    dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert dots == pytest.approx([0.96, 0.94, 0.88, 0.10])  # the best first, on the test set
    assert all(0.05 < place((dot, 0))[0] < 0.95 for dot in dots)
    first, second = (place((dot, 0))[0] for dot in dots[:2])
    assert first - second > 0.1  # an even axis would leave 0.02


def test_one_of_two_seeds_far_behind_is_within(make_study: Callable[..., Study]) -> None:
    ours, other = {0: {"accuracy": 0.97}, 1: {"accuracy": 0.975}}, {0: {"accuracy": 0.97}}
    study = make_study({"self-tuned": ours, "sgd-sa": other | {1: {"accuracy": 0.917}}})
    axes = drawn(study)
    low, high = axes.get_xlim()
    drawn_at = [x for line in axes.lines for x in line.get_xdata()]
    assert min(drawn_at) == pytest.approx(0.897)
    assert low < min(drawn_at)
    assert max(drawn_at) < high


def test_losses_by_method_have_the_better_one_to_the_right(
    make_study: Callable[..., Study],
) -> None:
    losses = {"sgd": 0.3, "adamw": 0.2, "random-rate": 9.0}
    runs = {m: {0: {"accuracy": None, "loss": loss}} for m, loss in losses.items()}
    axes = drawn(make_study(runs))
    worst, best = axes.get_xlim()
    assert worst > 9.05
    assert best < 0.25
    assert axes.get_xlabel().endswith("(lower, to the right, is better)")


def test_methods_that_differ_in_more_than_the_rate_are_no_sweep(
    make_study: Callable[..., Study],
) -> None:
    study = sweep(make_study)
    for place, label in enumerate(RATES):
        study.configs[label]["adamw"]["weight_decay"] = 0.1 * place
    assert hero(study).panel.title == "Test accuracy, best epoch, by method"


@pytest.mark.parametrize("runs", [{"sgd": {0: None}}, {"sgd": {0: {"done": 2}}}])
def test_nothing_to_show_yet(make_study: Callable[..., Study], runs: Any) -> None:
    study = make_study(runs)
    assert hero_of(study, study_statistics(study)) is None
