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
from .looks import Look, looks_of
from .score_axis import fit_score_axis
from .style import FAINT, INK

_ROW = 0.34  # inches


def height_of(rows: int) -> float:
    """Return the inches that a figure of some methods needs."""
    return max(2.4, 0.95 + _ROW * rows)


def draw(axes: Axes, study: Study, statistics: Statistics, baseline: str | None) -> Axes:
    """Draw a row for each method that has a number.

    Args:
        axes: to draw into.
        study: whose methods.
        statistics: of the measure that is drawn.
        baseline: the method whose mean is a thin line through all rows.
    """
    measure, looks = statistics.measure, looks_of(study)
    scores_by_method = {method: scores_of(study, method, measure) for method in statistics.ranking}
    every = [score for scores in scores_by_method.values() for score in scores.values()]
    fit_score_axis(axes, measure, every, "x")
    mean = statistics.summary(baseline).mean if baseline else None
    if mean is not None:
        axes.axvline(mean, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
    for row, (method, scores) in enumerate(scores_by_method.items()):
        _draw_seeds(axes, row, method, scores, looks[method], measure)
        _draw_mean(axes, row, method, list(scores.values()), looks[method], measure)
    _label_rows(axes, statistics)
    better = "higher" if measure.higher_is_better else "lower, to the right,"
    axes.set_xlabel(f"{measure.title} ({better} is better)")
    return axes


def _draw_seeds(
    axes: Axes,
    row: int,
    method: str,
    scores: dict[int, float],
    look: Look,
    measure: Measure,
) -> None:
    values = list(scores.values())
    # Equal scores would hide one another: the seeds are set apart within the row.
    heights = row + np.linspace(-0.22, 0.22, len(values)) * (len(values) > 1)
    dots: dict[str, Any] = {"marker": "o", "markersize": 5, "alpha": 0.5, "markeredgewidth": 0}
    axes.plot(values, heights, color=look.colour, linestyle="none", **dots)
    texts = [f"seed {seed}: {measure.text(value)}" for seed, value in scores.items()]
    show_values(axes, method, look.colour, values, heights.tolist(), texts)


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
