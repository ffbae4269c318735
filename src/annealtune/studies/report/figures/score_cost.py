"""What a score costs, in forwards and backwards. Time depends on the machine and is not drawn."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from annealtune.studies.records import RunRecord, Study
from annealtune.studies.report.thinning import shown_records
from annealtune.studies.statistics.costs import passes_of
from annealtune.studies.statistics.measures import number

from .curves import Numbers, value_text
from .end_labels import EndLabel, name_ends
from .hover import show_values
from .limits import curve_limits
from .looks import looks_of
from .style import THICK, in_per_cent, in_powers

Quantity = Literal["accuracy", "loss"]


def score_against_passes(axes: Axes, study: Study, quantity: Quantity) -> Axes:
    """Draw the mean on the validation set over the passes so far; a marker where each run ended.

    Passes are forwards plus twice the backwards.
    """
    means = {m: mean for m in study.methods if (mean := _mean(study, m, quantity)) is not None}
    looks = looks_of(study)
    for method, mean in means.items():
        look = looks[method]
        axes.plot(*mean.T, color=look.colour, linestyle=look.dashes, **THICK)
        axes.plot(*mean[-1], look.marker, color=look.colour, markersize=5)
        texts = [f"{x:,.0f} passes: {value_text(quantity, y)}" for x, y in mean]
        xs, ys = mean.T.tolist()
        show_values(axes, method, look.colour, xs, ys, texts, is_line=True)
    values = [mean[:, 1] for mean in means.values()]
    limits = curve_limits(values, may_be_log=quantity == "loss")
    if limits is not None:
        if limits.is_log:
            in_powers(axes)
        axes.set_ylim(limits.low, limits.high)
    axes.set_xlabel("forwards + 2 × backwards")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.set_xlim(left=0)
    axes.set_ylabel(f"validation {quantity}")
    if quantity == "accuracy":
        in_per_cent(axes)
    ends = [EndLabel(m, looks[m].colour, float(mean[-1, 1])) for m, mean in means.items()]
    name_ends(axes, ends)
    return axes


def can_draw(study: Study, quantity: Quantity) -> bool:
    """Whether any finished run has recorded cost and score."""
    return any(_path(run, quantity) is not None for run in study.runs)


def _mean(study: Study, method: str, quantity: Quantity) -> Numbers | None:
    paths = [path for run in study.of(method) if (path := _path(run, quantity)) is not None]
    if not paths:
        return None
    length = min(len(path) for path in paths)
    mean: Numbers = np.mean([path[:length] for path in paths], axis=0)
    return mean


def _path(run: RunRecord, quantity: Quantity) -> list[tuple[float, float]] | None:
    """Return cost and score after each epoch, None if any is missing or the run unfinished."""
    if run.status != "finished" or not run.metrics:
        return None
    points = []
    for record in shown_records(run.metrics):
        cost, score = passes_of(record), number(record, f"validation_{quantity}")
        if cost is None or score is None:
            return None
        points.append((cost, score))
    return points
