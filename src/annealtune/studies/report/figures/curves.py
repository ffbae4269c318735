"""A number over the epochs: a thin line for each seed, a thick line for their mean."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from annealtune.studies.records import RunRecord, Study
from annealtune.studies.statistics.measures import number

from .style import THICK, THIN, colour, count_epochs, in_per_cent, in_powers, legend, line

Numbers = NDArray[np.float64]
Looks = dict[str, dict[str, Any]]

# Beyond this ratio of the largest value to the lower quartile, a linear axis shows it alone.
_WIDE = 10


def has(study: Study, methods: Sequence[str], key: str) -> bool:
    """Whether any run of these methods has a number under a key."""
    return any(
        number(record, key) is not None
        for run in study.runs
        if run.method in methods
        for record in run.metrics
    )


def curve(run: RunRecord, key: str) -> tuple[Numbers, Numbers]:
    """Return epochs and values of a run; NaN where a value is missing."""
    points = [(number(record, "epoch"), number(record, key)) for record in run.metrics]
    known = [(e, np.nan if value is None else value) for e, value in points if e is not None]
    epochs, values = zip(*known, strict=True) if known else ((), ())
    return np.array(epochs, dtype=float), np.array(values, dtype=float)


def mean_curve(
    runs: Sequence[RunRecord], key: str, *, over_known: bool = False
) -> tuple[Numbers, Numbers]:
    """Return epochs and the mean over finished runs.

    Where a run has no value in an epoch there is no mean, or it is `over_known` values.
    """
    epochs, rows = stack(runs, key)
    if not len(rows):
        return epochs, np.array([])
    if not over_known:
        return epochs, rows.mean(axis=0)
    known = np.isfinite(rows)
    sums, counts = np.where(known, rows, 0).sum(axis=0), known.sum(axis=0)
    return epochs, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def stack(runs: Sequence[RunRecord], key: str) -> tuple[Numbers, Numbers]:
    """Return the epochs that all finished runs have, and their values, one row a run."""
    curves = [curve(run, key) for run in runs if run.status == "finished" and run.metrics]
    if not curves:
        return np.array([]), np.empty((0, 0))
    common = sorted(set.intersection(*(set(epochs.tolist()) for epochs, _ in curves)))
    rows = [values[np.isin(epochs, common)] for epochs, values in curves]
    return np.array(common), np.array(rows)


def draw_methods(axes: Axes, study: Study, methods: Sequence[str], looks: Looks) -> None:
    """Draw the runs of several methods and a legend of those that had anything to draw.

    `looks` are keys of ``metrics.jsonl`` with what else `draw_runs` takes for each.
    """
    drawn = []
    for method in methods:
        color = colour(study.methods, method)
        found = [draw_runs(axes, study.of(method), key, color, **looks[key]) for key in looks]
        if any(found):
            drawn.append(method)
    count_epochs(axes)
    method_legend(axes, study, drawn)


def draw_runs(
    axes: Axes,
    runs: Sequence[RunRecord],
    key: str,
    color: str,
    *,
    over_known: bool = False,
    **look: Any,
) -> bool:
    """Draw the runs of one method; tell whether there was anything to draw.

    A run that did not finish is dotted and left out of the mean.
    """
    finished = [run for run in runs if run.status == "finished"]
    others = [run for run in runs if run.status != "finished"]
    curves = [curve(run, key) for run in (*finished, *others)]
    if len(finished) > 1:
        axes.plot(*_joined(curves[: len(finished)]), color=color, **{**THIN, **look})
    if others:
        dotted = {**THIN, "alpha": 0.7, **look, "linestyle": ":"}
        axes.plot(*_joined(curves[len(finished) :]), color=color, **dotted)
    epochs, mean = mean_curve(finished, key, over_known=over_known)
    if epochs.size:
        alone = {"marker": "o", "markersize": 4} if np.isfinite(mean).sum() < 2 else {}
        axes.plot(epochs, mean, color=color, **{**THICK, **look, **alone})
    return any(np.isfinite(values).any() for _, values in curves)


def over_epochs(axes: Axes, study: Study, methods: Sequence[str], key: str, title: str) -> Axes:
    """Draw one number of several methods over the epochs."""
    draw_methods(axes, study, methods, {key: {}})
    _label_values(axes, key, title)
    return axes


def train_against_validation(
    axes: Axes, study: Study, methods: Sequence[str], quantity: str
) -> Axes:
    """Draw loss or accuracy on the training set (dashed) and on the validation set (solid)."""
    looks: Looks = {f"train_eval_{quantity}": {"linestyle": "--"}, f"validation_{quantity}": {}}
    draw_methods(axes, study, methods, looks)
    _label_values(axes, quantity, f"{quantity} (dashed: training)")
    return axes


def method_legend(axes: Axes, study: Study, methods: Sequence[str]) -> None:
    """Put a legend above the axes: the methods and the numbers of their finished runs."""
    legend(axes, [_method_line(study, method) for method in methods])


def _method_line(study: Study, method: str) -> Line2D:
    n = sum(run.status == "finished" for run in study.of(method))
    return line(f"{method} (n = {n})", colour(study.methods, method), **THICK)


def _joined(curves: Sequence[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    """Join curves into one line with gaps: less to write down than one line a seed."""
    gap = np.array([np.nan])
    return (
        np.concatenate([part for epochs, _ in curves for part in (epochs, gap)]),
        np.concatenate([part for _, values in curves for part in (values, gap)]),
    )


def _label_values(axes: Axes, key: str, title: str) -> None:
    axes.set_ylabel(title)
    if key.endswith("loss"):
        values = [np.asarray(each.get_ydata(), dtype=float) for each in axes.lines]
        seen = np.concatenate([each[np.isfinite(each)] for each in values] or [np.array([])])
        if seen.size and seen.min() > 0 and seen.max() / np.percentile(seen, 25) > _WIDE:
            in_powers(axes)
    else:
        in_per_cent(axes)
