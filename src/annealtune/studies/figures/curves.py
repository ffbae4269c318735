"""A number over the epochs: one thin line a seed, a thick line for their mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from annealtune.studies.measures import number
from annealtune.studies.results import RunRecord, Study

from .style import THICK, THIN, colour, count_epochs, in_per_cent, in_powers, legend, line

Numbers = NDArray[np.float64]
Looks = dict[str, dict[str, Any]]

# Beyond this ratio of the largest value to the lower quartile, a linear axis shows it alone.
_LOGARITHMIC_BEYOND = 10


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

    Args:
        runs: of one method.
        key: of ``metrics.jsonl``.
        over_known: leave out runs that have no value in an epoch; else there is no mean in it.
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


def draw_curves(
    axes: Axes,
    runs: Sequence[RunRecord],
    key: str,
    color: str,
    *,
    over_known: bool = False,
    **look: Any,
) -> bool:
    """Draw the runs of one method.

    A run that did not finish is dotted and no part of the mean.

    Args:
        axes: to draw into.
        runs: of one method.
        key: of ``metrics.jsonl``.
        color: of its lines.
        over_known: see `mean_curve`.
        look: of its lines, besides the colour.

    Returns:
        Whether there was anything to draw.
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


def draw_methods(axes: Axes, study: Study, methods: Sequence[str], looks: Looks) -> list[str]:
    """Draw the runs of several methods.

    Args:
        axes: to draw into.
        study: whose runs are drawn.
        methods: the labels of those to show.
        looks: by key of ``metrics.jsonl``, what else `draw_curves` takes.

    Returns:
        The methods that had anything to draw.
    """
    found = []
    for method in methods:
        color = colour(study.methods, method)
        drawn = [draw_curves(axes, study.of(method), key, color, **looks[key]) for key in looks]
        if any(drawn):
            found.append(method)
    return found


def over_epochs(axes: Axes, study: Study, methods: Sequence[str], key: str, title: str) -> Axes:
    """Draw one number of several methods over the epochs.

    Args:
        axes: to draw into.
        study: whose runs are drawn.
        methods: the labels of those to show.
        key: of ``metrics.jsonl``.
        title: of the vertical axis.
    """
    drawn = draw_methods(axes, study, methods, {key: {}})
    _finish(axes, key, title)
    legend(axes, [method_line(study, method) for method in drawn])
    return axes


def train_against_validation(
    axes: Axes, study: Study, methods: Sequence[str], quantity: str
) -> Axes:
    """Draw a number on the training set (dashed) and on the validation set (solid).

    Args:
        axes: to draw into.
        study: whose runs are drawn.
        methods: the labels of those to show.
        quantity: ``"loss"`` or ``"accuracy"``.
    """
    looks: Looks = {f"train_eval_{quantity}": {"linestyle": "--"}, f"validation_{quantity}": {}}
    drawn = draw_methods(axes, study, methods, looks)
    _finish(axes, f"validation_{quantity}", f"{quantity} (dashed: training)")
    legend(axes, [method_line(study, method) for method in drawn])
    return axes


def method_line(study: Study, method: str) -> Any:
    """Return a legend's line for a method and the number of its finished runs."""
    n = sum(run.status == "finished" for run in study.of(method))
    return line(f"{method} (n = {n})", colour(study.methods, method), **THICK)


def _joined(curves: Sequence[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    """Join curves into one line with gaps: less to write down than one line a seed."""
    gap = np.array([np.nan])
    return (
        np.concatenate([part for epochs, _ in curves for part in (epochs, gap)]),
        np.concatenate([part for _, values in curves for part in (values, gap)]),
    )


def _finish(axes: Axes, key: str, title: str) -> None:
    count_epochs(axes)
    axes.set_ylabel(title)
    if key.endswith("loss"):
        values = [np.asarray(each.get_ydata(), dtype=float) for each in axes.lines]
        seen = np.concatenate([each[np.isfinite(each)] for each in values] or [np.array([])])
        if seen.size and seen.min() > 0 and _is_wide(seen):
            in_powers(axes)
    else:
        in_per_cent(axes)


def _is_wide(values: Numbers) -> bool:
    return bool(values.max() > _LOGARITHMIC_BEYOND * np.percentile(values, 25))
