"""The score of every method: seeds as dots, the mean with its interval, the best ones first."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from annealtune.studies.records import Study
from annealtune.studies.statistics.comparisons import bootstrap_interval
from annealtune.studies.statistics.measures import Measure
from annealtune.studies.statistics.summaries import Statistics, scores_of

from .end_labels import short
from .hover import show_values
from .limits import score_limits
from .looks import Look, looks_of
from .style import FAINT, INK, in_per_cent

_ROW = 0.34  # inches


def height_of(rows: int) -> float:
    """Return the inches that a figure of some methods needs."""
    return max(2.4, 0.95 + _ROW * rows)


def limits_of(study: Study, statistics: Statistics) -> tuple[float, float]:
    """Return the ends of the axis: methods far behind three quarters are cut off."""
    measure = statistics.measure
    means = [mean for m in statistics.ranking if (mean := statistics.summary(m).mean) is not None]
    scores = [s for m in study.methods for s in scores_of(study, m, measure).values()]
    kept = max(2, -(-3 * len(means) // 4))
    return score_limits(means, scores, higher_is_better=measure.higher_is_better, kept=kept)


def draw(axes: Axes, study: Study, statistics: Statistics, baseline: str | None) -> Axes:
    """Draw a row for each method that has a number.

    Args:
        axes: to draw into.
        study: whose methods.
        statistics: of the measure that is drawn.
        baseline: the method whose mean is a thin line through all rows.
    """
    measure, looks = statistics.measure, looks_of(study)
    low, high = limits_of(study, statistics)
    axes.set_xlim(low, high)
    mean = statistics.summary(baseline).mean if baseline else None
    if mean is not None:
        axes.axvline(mean, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
    for row, method in enumerate(statistics.ranking):
        scores = scores_of(study, method, measure)
        _draw_seeds(axes, row, method, scores, looks[method], measure, (low, high))
        _draw_mean(axes, row, method, list(scores.values()), looks[method], measure)
    _label_rows(axes, statistics)
    axes.set_xlabel(
        f"{measure.title} ({'higher' if measure.higher_is_better else 'lower'} is better)"
    )
    if measure.quantity == "accuracy":
        in_per_cent(axes, "x")
    return axes


def _draw_seeds(
    axes: Axes,
    row: int,
    method: str,
    scores: dict[int, float],
    look: Look,
    measure: Measure,
    limits: tuple[float, float],
) -> None:
    values = np.array(list(scores.values()))
    inside = np.clip(values, *limits)
    # Equal scores would hide one another: the seeds are set apart within the row.
    heights = row + np.linspace(-0.22, 0.22, values.size) * (values.size > 1)
    seen = values == inside
    dots: dict[str, Any] = {"color": look.colour, "linestyle": "none", "markeredgewidth": 0}
    axes.plot(values[seen], heights[seen], marker="o", markersize=5, alpha=0.5, **dots)
    for marker, gone in (("<", values < limits[0]), (">", values > limits[1])):
        if gone.any():
            look_beyond = {**dots, "marker": marker, "markersize": 5.5, "clip_on": False}
            axes.plot(inside[gone], heights[gone], **look_beyond)
    texts = [f"seed {seed}: {measure.text(value)}" for seed, value in scores.items()]
    show_values(axes, method, look.colour, inside.tolist(), heights.tolist(), texts)


def _draw_mean(
    axes: Axes, row: int, method: str, values: Sequence[float], look: Look, measure: Measure
) -> None:
    mean = float(np.mean(values))
    low, high = bootstrap_interval(list(values))
    text = f"mean of {len(values)}: {measure.text(mean)}"
    if low is not None and high is not None:
        axes.plot([low, high], [row, row], color=look.colour, linewidth=2.2, zorder=3)
        text += f"\n95 % interval {measure.number(low)} to {measure.text(high)}"
    mark: dict[str, Any] = {"marker": "|", "markersize": 15, "markeredgewidth": 2.6}
    axes.plot([mean], [row], color=look.colour, zorder=4, **mark)
    show_values(axes, method, look.colour, [mean], [row], [text])


def _label_rows(axes: Axes, statistics: Statistics) -> None:
    """Write the name of each method at the left and its mean at the right."""
    figure = axes.get_figure(root=True)
    is_narrow = figure is not None and figure.get_figwidth() < 6
    ranking = statistics.ranking
    names = [short(method, 20 if is_narrow else 36) for method in ranking]
    axes.set_yticks(range(len(ranking)), names)
    axes.set_ylim(len(ranking) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    for row, method in enumerate(ranking):
        if row % 2:
            axes.axhspan(row - 0.5, row + 0.5, color=FAINT, alpha=0.3, linewidth=0, zorder=0)
        axes.text(
            1.015,
            row,
            statistics.measure.text(statistics.summary(method).mean),
            transform=axes.get_yaxis_transform(),
            verticalalignment="center_baseline",
            fontweight="bold" if row == 0 else "normal",
        )
