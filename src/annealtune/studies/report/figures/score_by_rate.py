"""The score over the learning rate: one method as a curve, the others as flat lines."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from annealtune.studies.records import Study
from annealtune.studies.statistics.measures import Measure, kind_of
from annealtune.studies.statistics.rate_sweeps import RateSweep, rate_found
from annealtune.studies.statistics.summaries import Statistics, scores_of

from .end_labels import EndLabel, name_ends
from .hover import show_values
from .limits import score_limits
from .looks import looks_of
from .style import INK, WIDTH, in_per_cent, legend, line, power_of_ten

HEIGHT = 4.4  # inches
_MOST_KEYS = 4
_CLOSE = 0.06  # of the axis


def limits_of(
    study: Study, statistics: Statistics, sweeps: Sequence[RateSweep]
) -> tuple[float, float]:
    """Return the ends of the axis: the best three rates and the flat lines can be told apart."""
    measure = statistics.measure
    swept = [label for sweep in sweeps for label in sweep.labels.values()]
    means = {m: mean for m in study.methods if (mean := statistics.summary(m).mean) is not None}
    sign = 1 if measure.higher_is_better else -1
    best = sorted((m for m in means if m in swept), key=lambda m: -sign * means[m])[:3]
    flat = [m for m in means if m not in swept]
    # A flat line that is worse than the third best rate is cut off like a rate.
    better = [m for m in flat if not best or sign * means[m] >= sign * means[best[-1]]]
    shown = [*best, *better]
    scores = [score for m in means for score in scores_of(study, m, measure).values()]
    return score_limits(
        [means[m] for m in shown],
        scores,
        higher_is_better=measure.higher_is_better,
        kept=len(shown),
    )


def draw(axes: Axes, study: Study, statistics: Statistics, sweeps: Sequence[RateSweep]) -> Axes:
    """Draw every sweep as a curve over its rates, every other method as a flat line.

    Args:
        axes: to draw into.
        study: whose methods.
        statistics: of the measure that is drawn.
        sweeps: of the study, at least one.
    """
    measure = statistics.measure
    low, high = limits_of(study, statistics, sweeps)
    rates = [rate for sweep in sweeps for rate in sweep.labels]
    axes.set_xscale("log")
    room = (max(rates) / min(rates)) ** 0.08
    axes.set_xlim(min(rates) / room, max(rates) * room)
    # The better end is always the upper one.
    axes.set_ylim((low, high) if measure.higher_is_better else (high, low))
    swept = {label for sweep in sweeps for label in sweep.labels.values()}
    others = [method for method in statistics.ranking if method not in swept]
    flats = [mean for m in others if (mean := statistics.summary(m).mean) is not None]
    for sweep in sweeps:
        _draw_sweep(axes, study, statistics, sweep, flats)
    for method in others:
        _draw_flat(axes, study, statistics, method)
    axes.set_xlabel("learning rate")
    axes.set_ylabel(measure.title if measure.higher_is_better else f"{measure.title}, lower is up")
    if measure.quantity == "accuracy":
        in_per_cent(axes)
    axes.xaxis.set_major_locator(LogLocator(base=10, numticks=20))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: power_of_ten(rate)))
    axes.grid(visible=False, axis="x")
    _name_lines(axes, study, statistics, others)
    _add_key(axes, study, sweeps, others)
    return axes


def _draw_sweep(
    axes: Axes,
    study: Study,
    statistics: Statistics,
    sweep: RateSweep,
    flats: Sequence[float],
) -> None:
    measure, looks = statistics.measure, looks_of(study)
    scores = {rate: scores_of(study, m, measure) for rate, m in sweep.labels.items()}
    known = {rate: list(each.values()) for rate, each in scores.items() if each}
    if not known:
        return
    rates = list(known)
    means = [float(np.mean(known[rate])) for rate in rates]
    lows, highs = ([end(known[rate]) for rate in rates] for end in (min, max))
    axes.fill_between(rates, lows, highs, color=INK, alpha=0.1, linewidth=0)
    axes.plot(rates, means, color=INK, linewidth=1.6, alpha=0.75)
    bottom, top = sorted(axes.get_ylim())
    edge = bottom if measure.higher_is_better else top
    for rate, mean in zip(rates, means, strict=True):
        label = sweep.labels[rate]
        color = looks[label].colour
        texts = [f"lr {rate:g}, seed {s}: {measure.text(v)}" for s, v in scores[rate].items()]
        values = np.array(known[rate])
        seen = values[(values >= bottom) & (values <= top)]
        axes.plot([rate] * seen.size, seen, "o", color=color, markersize=4, alpha=0.45, mew=0)
        show_values(axes, label, color, [rate] * values.size, values.tolist(), texts)
        text = f"lr {rate:g}, mean of {values.size}: {measure.text(mean)}"
        if bottom <= mean <= top:
            axes.plot([rate], [mean], looks[label].marker, color=color, markersize=8, zorder=4)
            show_values(axes, label, color, [rate], [mean], [text])
        else:
            arrow: dict[str, Any] = {"marker": "v", "markersize": 8, "clip_on": False, "zorder": 5}
            axes.plot([rate], [edge], color=color, **arrow)
            axes.annotate(
                _roughly(measure, mean),
                (rate, edge),
                (0, 7),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=color,
            )
            show_values(axes, label, color, [rate], [edge], [text])
    _name_best(axes, measure, rates, means, flats)


def _name_best(
    axes: Axes,
    measure: Measure,
    rates: Sequence[float],
    means: Sequence[float],
    flats: Sequence[float],
) -> None:
    """Write the best mean of a sweep beside its point, clear of a flat line that is close."""
    mean = measure.best(list(means))
    rate = rates[list(means).index(mean)]
    bottom, top = axes.get_ylim()  # turned round for losses
    near = [away for flat in flats if abs(away := (mean - flat) / (top - bottom)) < _CLOSE]
    shift = 0 if not near else (11 if min(near, key=abs) >= 0 else -12)
    axes.annotate(
        measure.text(mean),
        (rate, mean),
        (9, shift),
        textcoords="offset points",
        va="center_baseline",
        fontweight="bold",
        color=INK,
    )


def _add_key(axes: Axes, study: Study, sweeps: Sequence[RateSweep], others: Sequence[str]) -> None:
    """Say above the axes what is a curve and what a flat line."""
    looks = looks_of(study)
    handles = []
    for sweep in sweeps:
        middle = list(sweep.labels.values())[len(sweep.labels) // 2]
        mark: dict[str, Any] = {"marker": looks[middle].marker, "markersize": 7}
        mark |= {"markerfacecolor": looks[middle].colour, "markeredgewidth": 0}
        handles.append(line(f"{sweep.kind}, a fixed rate each", INK, linewidth=1.6, **mark))
    for method in others:
        is_ours = kind_of(study, method) == "self-tuned"
        name = f"{method}, given no rate" if is_ours else method
        width = 2.6 if is_ours else 1.4
        handles.append(line(name, looks[method].colour, linewidth=width))
    if len(handles) <= _MOST_KEYS:
        legend(axes, handles)


def _roughly(measure: Measure, mean: float) -> str:
    return f"{100 * mean:.0f} %" if measure.quantity == "accuracy" else f"{mean:.2g}"


def _draw_flat(axes: Axes, study: Study, statistics: Statistics, method: str) -> None:
    measure, color = statistics.measure, looks_of(study)[method].colour
    scores = scores_of(study, method, measure)
    values = list(scores.values())
    mean = float(np.mean(values))
    is_ours = kind_of(study, method) == "self-tuned"
    axes.axhspan(min(values), max(values), color=color, alpha=0.13, linewidth=0)
    axes.axhline(mean, color=color, linewidth=2.6 if is_ours else 1.4, zorder=3)
    bottom, top = sorted(axes.get_ylim())
    found = [
        (rate, run.seed)
        for run in study.of(method)
        if (rate := rate_found(run)) and run.seed in scores
    ]
    if found and bottom <= mean <= top:
        rates = [rate for rate, _ in found]
        tick: dict[str, Any] = {
            "marker": "|",
            "markersize": 12,
            "markeredgewidth": 1.8,
            "linestyle": "none",
        }
        axes.plot(rates, [mean] * len(rates), color=color, zorder=4, **tick)
        texts = [
            f"seed {seed}: {measure.text(scores[seed])},\nfound the rate {rate:.2g}"
            for rate, seed in found
        ]
        show_values(axes, method, color, rates, [mean] * len(rates), texts)
    left, right = axes.get_xlim()
    places = np.geomspace(left * 1.05, right / 1.05, 24)
    text = f"mean of {len(values)}: {measure.text(mean)}"
    show_values(axes, method, color, places.tolist(), [mean] * 24, [text] * 24, is_line=True)


def _name_lines(axes: Axes, study: Study, statistics: Statistics, methods: Sequence[str]) -> None:
    looks = looks_of(study)
    figure = axes.get_figure(root=True)
    is_narrow = figure is not None and figure.get_figwidth() <= WIDTH  # the key has the names
    labels = []
    for method in methods:
        mean = statistics.summary(method).mean
        if mean is not None:
            is_ours = kind_of(study, method) == "self-tuned"
            value = statistics.measure.text(mean)
            text = value if is_narrow and len(methods) < _MOST_KEYS else f"{method} {value}"
            labels.append(EndLabel(text, looks[method].colour, mean, is_ours))
    name_ends(axes, labels)
