"""Numbers of a study over the epochs: a thin line for each seed, a thick line for their mean."""

import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from annealtune.studies.records import RunRecord, Study
from annealtune.studies.statistics.measures import kind_of, number

from .panels import Panel
from .style import (
    THICK,
    THIN,
    Look,
    count_epochs,
    in_per_cent,
    in_powers,
    label,
    legend,
    line,
    looks_of,
)

Numbers = NDArray[np.float64]
# With more methods than this, two lines a method or a line a seed are a thicket.
FEW_METHODS = 6
# Records of a run that a page shows.
MOST_SHOWN = 1000
# Points of all seeds of a method in one figure.
_MOST_POINTS = 20_000
# The last steps of a decay go to nothing: two and a half decades show all that matters.
DECAY = 300.0

_Record = TypeVar("_Record")


class Curve(NamedTuple):
    """A key of ``metrics.jsonl``, how it is read and drawn.

    Attributes:
        key: its name.
        told: which of several numbers of a method it is.
        dashes: a line style in place of the method's own.
        over_known: whether a run without a value in an epoch is left out of the mean there.
    """

    key: str
    told: str = ""
    dashes: Any = None
    over_known: bool = False


# --- which figures a study has ---


def performance_panels(study: Study, methods: Sequence[str], prefix: str) -> list[Panel]:
    """Return loss and accuracy on the validation set, and beside them on the training set."""
    panels = []
    for quantity in ("loss", "accuracy"):
        title = f"validation {quantity}"
        name = f"{prefix}-validation-{quantity}"
        panels += curve_panels(study, methods, name, title, [Curve(f"validation_{quantity}")])
    for quantity in ("loss", "accuracy"):
        lines = [Curve(f"train_eval_{quantity}", "training", ":")]
        lines += [Curve(f"validation_{quantity}", "validation")] * (len(methods) <= FEW_METHODS)
        title = f"{' and '.join(each.told for each in lines)} {quantity}"
        panels += curve_panels(
            study, methods, f"{prefix}-training-{quantity}", title, lines, quantity
        )
    return panels


def accept_panels(study: Study) -> list[Panel]:
    """Return probabilities, temperature and worsening moves of the methods that have moves."""
    methods = [m for m in study.methods if has(study, [m], "accept_probability")]
    # In epochs without a worsening move there is no probability to be averaged.
    chance, of_worsening = Curve("accept_probability"), "worsening_accept_probability"
    worsening = Curve(of_worsening, over_known=True)
    rejected = Curve("rejected_worsening", "rejected", ":")
    accepted = Curve("accepted_worsening", "accepted")
    heat, moves = "temperature (none: infinite)", "worsening moves: accepted and rejected"
    panel = partial(curve_panels, study, methods)
    return [
        *panel("accept-probability", "probability of accepting a move", [chance]),
        *panel("accept-worsening", "probability of accepting a worsening move", [worsening]),
        *panel("accept-temperature", heat, [Curve("temperature")]),
        *panel("accept-worsening-moves", moves, [rejected, accepted]),
    ]


def rate_panels(study: Study) -> list[Panel]:
    """Return the learning rate over the epochs, of a method over H the mean of accepted moves."""
    methods = [m for m in study.methods if has(study, [m], "rate")]
    found = curve_panels(study, methods, "rates", "learning rate", [Curve("rate")])
    return [panel._replace(height=3.4, is_wide=True) for panel in found]


def curve_panels(
    study: Study,
    methods: Sequence[str],
    name: str,
    title: str,
    lines: Sequence[Curve],
    axis: str = "",
) -> list[Panel]:
    """Return one panel, or none if no run has recorded its first key.

    Args:
        study: whose runs are drawn.
        methods: which of them.
        name: of the panel.
        title: what it shows.
        lines: for each method, drawn one above the other.
        axis: the vertical one's name; by default the first words of the title.
    """
    if not has(study, methods, lines[0].key):
        return []
    axis = axis or re.split(r":|,| \(| of ", title)[0]
    draw = partial(over_epochs, study=study, methods=methods, lines=lines, title=axis)
    return [Panel(name, title[0].upper() + title[1:], draw)]


def of_kind(study: Study, *kinds: str) -> list[str]:
    """Return the methods of some kinds, whatever their labels are."""
    return [method for method in study.methods if kind_of(study, method) in kinds]


# --- reading ---


def shown_records(records: Sequence[_Record]) -> Sequence[_Record]:
    """Return those records of a long run that a page shows: a page does not grow with the epochs.

    All of a thousand epochs; of more every second, fourth, eighth and so on, so that runs of
    different lengths have epochs in common, besides the first and the last one.

    Example:
        >>> shown_records(range(1, 3))
        range(1, 3)
        >>> found = shown_records(range(1, 2502))
        >>> found[:3], found[-2:], len(found)
        ((1, 4, 8), (2500, 2501), 627)
    """
    every = 1
    while len(records) > MOST_SHOWN * every:
        every *= 2
    if every == 1:
        return records
    last = records[-1:] if len(records) % every else ()
    return (*records[:1], *records[every - 1 :: every], *last)


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
    points = [
        (number(record, "epoch"), number(record, key)) for record in shown_records(run.metrics)
    ]
    known = [(e, math.nan if value is None else value) for e, value in points if e is not None]
    epochs, values = zip(*known, strict=True) if known else ((), ())
    return np.array(epochs, dtype=float), np.array(values, dtype=float)


def mean_curve(
    runs: Sequence[RunRecord], key: str, *, over_known: bool = False
) -> tuple[Numbers, Numbers]:
    """Return the epochs that all finished runs have, and the mean; of rates the geometric one.

    Where a run has no value in an epoch there is no mean, or it is `over_known` values.
    """
    curves = [curve(run, key) for run in runs if run.status == "finished" and run.metrics]
    if not curves:
        return np.array([]), np.array([])
    common = sorted(set.intersection(*(set(epochs.tolist()) for epochs, _ in curves)))
    rows = np.array([values[np.isin(epochs, common)] for epochs, values in curves])
    if key == "rate":
        with np.errstate(divide="ignore"):
            return np.array(common), np.exp(np.log(rows).mean(axis=0))
    if not over_known:
        return np.array(common), rows.mean(axis=0)
    known = np.isfinite(rows)
    sums, counts = np.where(known, rows, 0).sum(axis=0), known.sum(axis=0)
    return np.array(common), np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


# --- drawing ---


def over_epochs(
    axes: Axes, study: Study, methods: Sequence[str], lines: Sequence[Curve], title: str
) -> Axes:
    """Draw some numbers of several methods over the epochs.

    The axis holds every value that is drawn: no drop and no spike is cut off. Of many methods only
    the means are drawn: with every seed they would be a thicket.
    """
    looks = looks_of(study)
    for method in methods:
        for each in lines:
            _draw_runs(axes, study.of(method), each, method, looks[method], len(methods))
    count_epochs(axes)
    key = lines[0].key
    values = drawn_values(axes)
    positive = values[values > 0]
    if key.endswith(("accuracy", "probability")):
        in_per_cent(axes)
    elif key.endswith("loss"):
        in_powers(axes, values)
    elif key == "temperature":
        in_powers(axes, positive)
    elif key == "rate" and positive.size:
        in_powers(axes, positive, ratio=1.0)
        peaks = [ys.max() for each in axes.lines if (ys := _heights(each)).size]
        axes.set_ylim(max(positive.min() / 1.3, min(peaks) / DECAY), positive.max() * 1.5)
    else:
        axes.set_ylim(bottom=0)
    if key.endswith("probability"):
        axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel(title)
    counts = {len(study.of(method)) for method in methods}
    handles = [_handle(study.of(m), m, looks[m], len(counts) > 1) for m in methods]
    if len(lines) > 1:
        handles += [line(each.told, linestyle=each.dashes or "-", **THICK) for each in lines]
    legend(axes, handles)
    return axes


def drawn_values(axes: Axes) -> Numbers:
    """Return the finite heights of all lines that were drawn."""
    return np.concatenate([np.array([]), *map(_heights, axes.lines)])


def _heights(of: Line2D) -> Numbers:
    values = np.asarray(of.get_ydata(), dtype=float)
    return np.asarray(values[np.isfinite(values)])


def _draw_runs(
    axes: Axes, runs: Sequence[RunRecord], of: Curve, method: str, look: Look, methods: int
) -> None:
    """Draw the runs of one method. One that did not finish is dotted and left out of the mean."""
    finished = [curve(run, of.key) for run in runs if run.status == "finished"]
    others = [curve(run, of.key) for run in runs if run.status != "finished"]
    if methods <= FEW_METHODS and len(finished) > 1:
        axes.plot(*_joined(finished), color=look.colour, linestyle=of.dashes or "-", **THIN)
    if others:
        axes.plot(*_joined(others), color=look.colour, **{**THIN, "alpha": 0.7, "linestyle": ":"})
    epochs, mean = mean_curve(runs, of.key, over_known=of.over_known)
    if epochs.size:
        # A point without neighbours is no line: it gets a dot.
        known = np.pad(np.isfinite(mean), 1)
        alone = np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:]).tolist()
        dots = {"marker": "o", "markersize": 3, "markevery": alone} if alone else {}
        mark: dict[str, Any] = {"linestyle": of.dashes or look.dashes, **THICK, **dots}
        name = f"{method}, {of.told}" if of.told else method
        axes.plot(epochs, mean, color=look.colour, label=label(name), **mark)


def _handle(runs: Sequence[RunRecord], method: str, look: Look, is_counted: bool) -> Any:
    """Return a line for the legend, with the number of runs where methods differ in it."""
    n = sum(run.status == "finished" for run in runs)
    name = method if n == len(runs) else f"{method} ({n} of {len(runs)})"
    if is_counted and n == len(runs):
        name = f"{method} ({n} {'run' if n == 1 else 'runs'})"
    return line(name, look.colour, linestyle=look.dashes, **THICK)


def _joined(curves: Sequence[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    """Join curves into one line with gaps: less to write down than one line a seed.

    Of many long curves not all points are taken: nobody sees them in a thicket.
    """
    gap = np.array([np.nan])
    every = -(-sum(epochs.size for epochs, _ in curves) // _MOST_POINTS) or 1
    curves = [(epochs[::every], values[::every]) for epochs, values in curves]
    return (
        np.concatenate([part for epochs, _ in curves for part in (epochs, gap)]),
        np.concatenate([part for _, values in curves for part in (values, gap)]),
    )
