"""How far the seeds of a method lie apart."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter

from annealtune.studies.records import Study
from annealtune.studies.statistics.measures import Measure
from annealtune.studies.statistics.summaries import scores_of

from .curves import method_legend, stack
from .style import FAINT, THICK, colour, count_epochs, in_per_cent, label, legend, line, marker

_BOX = 0.5
_SEED_LABELS = 20


def boxes(axes: Axes, study: Study, measure: Measure) -> Axes:
    """Draw a box for each method: quartiles, median, the whole range, and a point for each seed."""
    for row, method in enumerate(study.methods):
        scores = np.array(list(scores_of(study, method, measure).values()))
        color = colour(study.methods, method)
        if scores.size > 1:
            low, first, middle, third, high = np.percentile(scores, [0, 25, 50, 75, 100])
            corner = (first, row - _BOX / 2)
            box = Rectangle(corner, third - first, _BOX, facecolor=color, alpha=0.25, linewidth=0)
            axes.add_patch(box)
            axes.plot([low, high], [row, row], color=color, linewidth=1)
            ends = [row - _BOX / 2, row + _BOX / 2]
            axes.plot([middle, middle], ends, color=color, solid_capstyle="butt", **THICK)
        if scores.size:
            # Equal scores would hide one another: the seeds are set apart within the box.
            heights = row + np.linspace(-0.5, 0.5, scores.size) * _BOX * 0.7 * (scores.size > 1)
            look = marker(study.methods, method)
            axes.plot(scores, heights, look, color=color, markersize=4, alpha=0.9)
    axes.set_yticks(range(len(study.methods)), [label(method) for method in study.methods])
    axes.set_ylim(len(study.methods) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(measure.title)
    if measure.quantity == "accuracy":
        in_per_cent(axes, "x")
    return axes


def by_seed(axes: Axes, study: Study, measure: Measure) -> Axes:
    """Draw the scores of all methods, one column for each seed."""
    scores = {method: scores_of(study, method, measure) for method in study.methods}
    places = {seed: place for place, seed in enumerate(study.seeds)}
    for seed, place in places.items():
        values = [each[seed] for each in scores.values() if seed in each]
        if len(values) > 1:
            axes.plot([place, place], [min(values), max(values)], color=FAINT, linewidth=2)
    # Equal scores would hide one another: the methods are set apart.
    shifts = np.linspace(-0.2, 0.2, len(scores)) if len(scores) > 1 else [0.0]
    handles = []
    for shift, (method, each) in zip(shifts, scores.items(), strict=True):
        color = colour(study.methods, method)
        point: dict[str, Any] = {
            "marker": marker(study.methods, method),
            "linestyle": "none",
            "markersize": 5,
        }
        columns = [places[seed] + shift for seed in each]
        axes.plot(columns, list(each.values()), color=color, alpha=0.9, **point)
        if each:
            handles.append(line(method, color, **point))
    every = -(-len(places) // _SEED_LABELS)
    axes.xaxis.set_major_locator(FixedLocator(list(range(0, len(places), every))))
    names = [str(seed) for seed in study.seeds]
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda place, _: names[round(place)] if 0 <= place < len(names) else "")
    )
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(study.vary.replace("_", " "))
    axes.set_ylabel(measure.title)
    if measure.quantity == "accuracy":
        in_per_cent(axes)
    legend(axes, handles)
    return axes


def deviation_over_epochs(axes: Axes, study: Study) -> Axes:
    """Draw the deviation of the validation accuracy between finished seeds, epoch by epoch."""
    drawn = []
    for method in study.methods:
        epochs, rows = stack(study.of(method), "validation_accuracy")
        if len(rows) > 1:
            drawn.append(method)
            color = colour(study.methods, method)
            axes.plot(epochs, rows.std(axis=0, ddof=1), color=color, **THICK)
    count_epochs(axes)
    axes.set_ylabel("deviation (points)")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}"))
    axes.set_ylim(bottom=0)
    method_legend(axes, study, drawn)
    return axes


def can_draw_deviation(study: Study) -> bool:
    """Whether any method has two finished runs with a validation accuracy."""
    stacks = [stack(study.of(method), "validation_accuracy")[1] for method in study.methods]
    return any(len(rows) > 1 and np.isfinite(rows).any() for rows in stacks)
