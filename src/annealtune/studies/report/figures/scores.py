"""What each method of a study reached: over the learning rate, or a row for each method."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from annealtune.studies.records import Study
from annealtune.studies.statistics import (
    Measure,
    RateSweep,
    Statistics,
    kind_of,
    rate_found,
    scores_of,
    sweeps_of,
)

from .panels import Panel
from .style import FAINT, INK, Look, figure_of, in_per_cent, label, legend, line, looks_of

# Beyond this ratio of the largest error, or loss, to the smallest one, ratios are what counts.
_WIDE = 3.0
_MARGIN = 0.07
_TICKS = tuple(each * 10.0**power for power in range(6, -7, -1) for each in (5, 3, 2, 1))
_MOST_TICKS = 8


def hero_panel(study: Study, statistics: Statistics) -> Panel:
    """Return the first figure of a study's page.

    The score over the rate where a method stands at several of them, else a row for each method.
    """
    measure = statistics.measure
    scores = [s for m in study.methods for s in scores_of(study, m, measure).values()]
    of_error = " of the error" if measure.quantity == "accuracy" else ""
    scale = f" Equal lengths are equal ratios{of_error}." if _shows_ratios(measure, scores) else ""
    title = measure.title[0].upper() + measure.title[1:]
    sweeps = [
        sweep
        for sweep in sweeps_of(study)
        if len(set(statistics.ranking).intersection(sweep.labels.values())) > 1
    ]
    if sweeps:
        draw = partial(by_rate, study=study, statistics=statistics, sweeps=sweeps)
        caption = f"Marks: means; dots: seeds; bands: their range; ticks: rates found.{scale}"
        return Panel("hero", f"{title}, over the learning rate", draw, 4.4, True, caption)
    draw = partial(by_method, study=study, statistics=statistics)
    height = max(2.4, 0.95 + 0.34 * len(statistics.ranking))
    caption = f"Dots: seeds; upright marks: their means; bars: their range.{scale}"
    return Panel("hero", f"{title}, by method", draw, height, True, caption)


def by_rate(axes: Axes, study: Study, statistics: Statistics, sweeps: Sequence[RateSweep]) -> Axes:
    """Draw every sweep as a curve over its rates, every other method as a flat line."""
    measure, looks = statistics.measure, looks_of(study)
    rates = [rate for sweep in sweeps for rate in sweep.labels]
    axes.set_xscale("log")
    room = (max(rates) / min(rates)) ** 0.08
    axes.set_xlim(min(rates) / room, max(rates) * room)
    scores = {method: scores_of(study, method, measure) for method in study.methods}
    handles = [_draw_sweep(axes, looks, sweep, scores, measure) for sweep in sweeps]
    swept = {method for sweep in sweeps for method in sweep.labels.values()}
    for method in (each for each in statistics.ranking if each not in swept):
        values, colour = scores[method], looks[method].colour
        mean = float(np.mean(list(values.values())))
        width = 2.6 if kind_of(study, method) == "self-tuned" else 1.4
        axes.axhspan(min(values.values()), max(values.values()), color=colour, alpha=0.13, lw=0)
        places = np.geomspace(*axes.get_xlim(), 24)
        axes.plot(places, [mean] * 24, color=colour, linewidth=width, label=label(method))
        found = [rate for run in study.of(method) if (rate := rate_found(run))]
        tick: dict[str, Any] = {"marker": "|", "markersize": 12, "markeredgewidth": 1.8}
        axes.plot(found, [mean] * len(found), color=colour, linestyle="none", zorder=4, **tick)
        handles.append(line(f"{method}: {measure.text(mean)}", colour, linewidth=width))
    fit_score_axis(axes, measure, [s for each in scores.values() for s in each.values()], "y")
    axes.set_xlabel("learning rate")
    axes.set_ylabel(measure.title if measure.higher_is_better else f"{measure.title}, lower is up")
    axes.xaxis.set_major_locator(LogLocator(base=10, numticks=20))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:.3g}"))
    axes.grid(visible=False, axis="x")
    legend(axes, handles)
    return axes


def _draw_sweep(
    axes: Axes,
    looks: dict[str, Look],
    sweep: RateSweep,
    scores: dict[str, dict[int, float]],
    measure: Measure,
) -> Line2D:
    """Draw one method over its rates; return a line for the legend."""
    known = {r: list(scores[m].values()) for r, m in sweep.labels.items() if scores[m]}
    means = {rate: float(np.mean(values)) for rate, values in known.items()}
    lows, highs = ([end(values) for values in known.values()] for end in (min, max))
    axes.fill_between(list(known), lows, highs, color=INK, alpha=0.1, linewidth=0)
    dashes = {"linestyle": looks[next(iter(sweep.labels.values()))].dashes, "linewidth": 1.6}
    axes.plot(list(means), list(means.values()), color=INK, alpha=0.75, **dashes)
    for rate, values in known.items():
        colour, name = looks[sweep.labels[rate]].colour, label(sweep.labels[rate])
        dots: dict[str, Any] = {"markersize": 4, "alpha": 0.45, "mew": 0}
        axes.plot([rate] * len(values), values, "o", color=colour, **dots)
        axes.plot([rate], [means[rate]], "o", color=colour, markersize=8, zorder=4, label=name)
    best = measure.best(means.values())
    where = next(rate for rate, mean in means.items() if mean == best)
    told = f"{sweep.kind}: best {measure.text(best)} at {where:g}"
    return line(told, INK, marker="o", markersize=5, **dashes)


def by_method(axes: Axes, study: Study, statistics: Statistics) -> Axes:
    """Draw a row for each method that has a number: its seeds, their mean and range."""
    measure, looks, ranking = statistics.measure, looks_of(study), statistics.ranking
    scores = {method: list(scores_of(study, method, measure).values()) for method in ranking}
    for row, (method, values) in enumerate(scores.items()):
        colour, mean = looks[method].colour, float(np.mean(values))
        if row % 2:
            axes.axhspan(row - 0.5, row + 0.5, color=FAINT, alpha=0.3, linewidth=0, zorder=0)
        # Equal scores would hide one another: the seeds are set apart within the row.
        heights = row + np.linspace(-0.22, 0.22, len(values)) * (len(values) > 1)
        dots: dict[str, Any] = {"markersize": 5, "alpha": 0.5, "mew": 0, "label": label(method)}
        axes.plot(values, heights, "o", color=colour, **dots)
        axes.plot([min(values), max(values)], [row, row], color=colour, linewidth=2.2, zorder=3)
        mark: dict[str, Any] = {"markersize": 15, "markeredgewidth": 2.6, "zorder": 4}
        axes.plot([mean], [row], "|", color=colour, **mark)
        weight = "normal" if row else "bold"
        axes.text(
            1.015, row, measure.text(mean), transform=axes.get_yaxis_transform(),
            verticalalignment="center_baseline", fontweight=weight,
        )  # fmt: skip
    fit_score_axis(axes, measure, [score for values in scores.values() for score in values], "x")
    is_narrow = figure_of(axes).get_figwidth() < 6
    axes.set_yticks(range(len(ranking)), [label(m, 20 if is_narrow else 36) for m in ranking])
    axes.set_ylim(len(ranking) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(measure.title if measure.higher_is_better else f"{measure.title}, lower right")
    return axes


# --- an axis on which good scores can be told apart and bad ones still be seen ---


def fit_score_axis(
    axes: Axes, measure: Measure, scores: Sequence[float], axis: Literal["x", "y"]
) -> None:
    """Turn an axis with scores on it so that the better ones are up or to the right.

    Accuracies of 60, 97 and 98 % are as far apart as their errors of 40, 3 and 2 %: equal ratios of
    the error have equal lengths. So have equal ratios of a loss. Scores that differ little are on
    an even axis.
    """
    is_accuracy = measure.quantity == "accuracy"
    getattr(axes, f"set_{axis}margin")(_MARGIN)
    if _shows_ratios(measure, scores):
        # Without any error at all a score is drawn as if it had half of the smallest one.
        least = min(size for size in _sizes(measure, scores) if size > 0) / 2

        def forward(values: Any) -> NDArray[np.float64]:
            if is_accuracy:
                return np.asarray(-np.log(np.maximum(1 - np.asarray(values), least)))
            return np.asarray(np.log(np.maximum(values, least)))

        def back(heights: Any) -> NDArray[np.float64]:
            return np.asarray(1 - np.exp(-heights) if is_accuracy else np.exp(heights))

        getattr(axes, f"set_{axis}scale")("function", functions=(forward, back))
        low, high = getattr(axes, f"get_{axis}lim")()
        ticks = [1 - tick if is_accuracy else tick for tick in _TICKS]
        ticks = [tick for tick in ticks if low <= tick <= high]
        most = 4 if axis == "x" and figure_of(axes).get_figwidth() < 6 else _MOST_TICKS
        kept = ticks[-1 :: -math.ceil(len(ticks) / most)] if ticks else []
        getattr(axes, f"{axis}axis").set_major_locator(FixedLocator(kept))
        getattr(axes, f"{axis}axis").set_minor_locator(NullLocator())
    if is_accuracy:
        in_per_cent(axes, axis)
    else:
        getattr(axes, f"invert_{axis}axis")()
        formatter = FuncFormatter(lambda value, _: f"{value:.4g}")
        getattr(axes, f"{axis}axis").set_major_formatter(formatter)


def _sizes(measure: Measure, scores: Sequence[float]) -> list[float]:
    """Return what is compared by its ratio: errors or losses."""
    return [1 - score if measure.quantity == "accuracy" else score for score in scores]


def _shows_ratios(measure: Measure, scores: Sequence[float]) -> bool:
    sizes = _sizes(measure, scores)
    known = [size for size in sizes if size > 0] if measure.quantity == "accuracy" else sizes
    return bool(known) and min(known) > 0 and max(known) / min(known) > _WIDE
