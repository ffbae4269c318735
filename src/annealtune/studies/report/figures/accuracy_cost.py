"""What accuracy costs: in forwards and backwards, and in time."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from annealtune.studies.records import RunRecord, Study
from annealtune.studies.statistics.costs import passes_of
from annealtune.studies.statistics.measures import number

from .curves import method_legend
from .style import THICK, colour, in_per_cent, marker

Currency = Literal["passes", "seconds"]


def accuracy_against_cost(axes: Axes, study: Study, currency: Currency) -> Axes:
    """Draw the mean validation accuracy over what was spent so far; a marker where each run ended.

    Passes are forwards plus twice the backwards, seconds those of training.
    """
    drawn = []
    for method in study.methods:
        paths = [each for run in study.of(method) if (each := _path(run, currency)) is not None]
        if not paths:
            continue
        drawn.append(method)
        color = colour(study.methods, method)
        length = min(len(path) for path in paths)
        mean = np.mean([path[:length] for path in paths], axis=0)
        axes.plot(*mean.T, color=color, **THICK)
        axes.plot(
            [path[-1][0] for path in paths],
            [path[-1][1] for path in paths],
            color=color,
            linestyle="none",
            marker=marker(study.methods, method),
            markersize=4.5,
            alpha=0.8,
        )
    if currency == "passes":
        axes.set_xlabel("forwards + 2 × backwards")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    else:
        axes.set_xlabel("training time (s)")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.set_xlim(left=0)
    axes.set_ylabel("validation accuracy")
    in_per_cent(axes)
    method_legend(axes, study, drawn)
    return axes


def can_draw_cost(study: Study, currency: Currency) -> bool:
    """Whether any finished run has recorded cost and accuracy."""
    return any(_path(run, currency) is not None for run in study.runs)


def _path(run: RunRecord, currency: Currency) -> list[tuple[float, float]] | None:
    """Return cost and accuracy after each epoch, None if any is missing or the run unfinished."""
    if run.status != "finished" or not run.metrics:
        return None
    points = []
    for record in run.metrics:
        cost = passes_of(record) if currency == "passes" else number(record, "training_seconds")
        accuracy = number(record, "validation_accuracy")
        if cost is None or accuracy is None:
            return None
        points.append((cost, accuracy))
    return points
