"""Numbers of a study over the epochs: a thin line for each seed, a thick line for their mean."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from annealtune.studies.records import RunRecord, Study
from annealtune.studies.statistics import kind_of, number

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
# Records of a run that a page shows: a page does not grow with the epochs.
MOST_SHOWN = 1000
# The last steps of a decay go to nothing: two and a half decades show all that matters.
DECAY = 300.0
_CHANCE, _WORSENING = "accept_probability", "worsening_accept_probability"


# --- which figures a study has ---


def performance_panels(study: Study, methods: Sequence[str], prefix: str) -> list[Panel]:
    """Return loss and accuracy on the validation set, and beside them on the training set."""
    panels = []
    for quantity in ("loss", "accuracy"):
        title, name = f"validation {quantity}", f"{prefix}-validation-{quantity}"
        panels += curve_panels(study, methods, name, title, {f"validation_{quantity}": ""})
    for quantity in ("loss", "accuracy"):
        keys = {f"train_eval_{quantity}": "training"}
        if len(methods) <= FEW_METHODS:
            keys[f"validation_{quantity}"] = "validation"
        title, name = f"{' and '.join(keys.values())} {quantity}", f"{prefix}-training-{quantity}"
        panels += curve_panels(study, methods, name, title, keys, quantity)
    return panels


def accept_panels(study: Study) -> list[Panel]:
    """Return probabilities, temperature and worsening moves of the methods that have moves."""
    panel = partial(curve_panels, study, [m for m in study.methods if has(study.of(m), _CHANCE)])
    moves = {"rejected_worsening": "rejected", "accepted_worsening": "accepted"}
    return [
        *panel("accept-probability", "probability of accepting a move", {_CHANCE: ""}),
        *panel("accept-worsening", "probability of accepting a worsening move", {_WORSENING: ""}),
        *panel("accept-temperature", "temperature (none: infinite)", {"temperature": ""}),
        *panel("accept-worsening-moves", "worsening moves: accepted and rejected", moves),
    ]


def rate_panels(study: Study) -> list[Panel]:
    """Return the learning rate over the epochs, of a method over H the mean of accepted moves."""
    methods = [m for m in study.methods if has(study.of(m), "rate")]
    found = curve_panels(study, methods, "rates", "learning rate", {"rate": ""})
    return [panel._replace(height=3.4, is_wide=True) for panel in found]


def curve_panels(
    study: Study,
    methods: Sequence[str],
    name: str,
    title: str,
    keys: Mapping[str, str],
    axis: str = "",
) -> list[Panel]:
    """Return one panel, or none if no run has recorded its first key.

    Args:
        study: whose runs are drawn.
        methods: which of them.
        name: of the panel.
        title: what it shows.
        keys: of ``metrics.jsonl``, each with its name; the first of two is dotted.
        axis: the vertical one's name; by default the first words of the title.
    """
    if not has([run for method in methods for run in study.of(method)], next(iter(keys))):
        return []
    axis = axis or re.split(r":|,| \(| of ", title)[0]
    draw = partial(over_epochs, study=study, methods=methods, keys=keys, title=axis)
    return [Panel(name, title[0].upper() + title[1:], draw)]


def of_kind(study: Study, *kinds: str) -> list[str]:
    """Return the methods of some kinds, whatever their labels are."""
    return [method for method in study.methods if kind_of(study, method) in kinds]


# --- reading ---


def has(runs: Iterable[RunRecord], key: str) -> bool:
    """Whether any of these runs has a number under a key."""
    return any(number(record, key) is not None for run in runs for record in run.metrics)


def curve(run: RunRecord, key: str) -> tuple[Numbers, Numbers]:
    """Return epochs and values of a run, not all of a long one; NaN where a value is missing."""
    every = max(1, math.ceil(len(run.metrics) / MOST_SHOWN))
    records = run.metrics[(len(run.metrics) - 1) % every :: every]  # the last one among them
    values = (number(record, key) for record in records)
    return (
        np.array([record["epoch"] for record in records], dtype=float),
        np.array([math.nan if value is None else value for value in values], dtype=float),
    )


def mean_curve(runs: Sequence[RunRecord], key: str) -> tuple[Numbers, Numbers]:
    """Return the epochs that all finished runs have, and the mean; of rates the geometric one.

    Where a run has no value in an epoch there is no mean; but a run without a worsening move has
    no probability of accepting one, and the others are averaged.
    """
    curves = [curve(run, key) for run in runs if run.status == "finished" and run.metrics]
    if not curves:
        return np.array([]), np.array([])
    common = sorted(set.intersection(*(set(epochs.tolist()) for epochs, _ in curves)))
    rows = np.array([values[np.isin(epochs, common)] for epochs, values in curves])
    if key == "rate":
        with np.errstate(divide="ignore"):
            return np.array(common), np.exp(np.log(rows).mean(axis=0))
    if key == _WORSENING:
        rows = np.ma.masked_invalid(rows)
    return np.array(common), np.ma.filled(rows.mean(axis=0), np.nan)


# --- drawing ---


def over_epochs(
    axes: Axes, study: Study, methods: Sequence[str], keys: Mapping[str, str], title: str
) -> Axes:
    """Draw some numbers of several methods over the epochs.

    The axis holds every value that is drawn: no drop and no spike is cut off. Of many methods only
    the means are drawn: with every seed they would be a thicket.
    """
    looks = looks_of(study)
    dashes = [":", "-"] if len(keys) > 1 else [None]
    for method in methods:
        for (key, told), dash in zip(keys.items(), dashes, strict=True):
            name = f"{method}, {told}" if told else method
            look = looks[method] if dash is None else looks[method]._replace(dashes=dash)
            _draw_runs(axes, study.of(method), key, name, look, len(methods))
    count_epochs(axes)
    first = next(iter(keys))
    values = drawn_values(axes)
    positive = values[values > 0]
    if first.endswith(("accuracy", "probability")):
        in_per_cent(axes)
    elif first.endswith("loss"):
        in_powers(axes, values)
    elif first == "temperature":
        in_powers(axes, positive)
    elif first == "rate" and positive.size:
        in_powers(axes, positive, ratio=1.0)
        peaks = [ys.max() for each in axes.lines if (ys := _heights(each)).size]
        axes.set_ylim(max(positive.min() / 1.3, min(peaks) / DECAY), positive.max() * 1.5)
    else:
        axes.set_ylim(bottom=0)
    if first.endswith("probability"):
        axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel(title)
    counts = {len(study.of(method)) for method in methods}
    handles = [_handle(study.of(m), m, looks[m], len(counts) > 1) for m in methods]
    if len(study.runs) == 1:  # its name is that of the page
        handles = []
    if len(keys) > 1:
        pairs = zip(keys.values(), dashes, strict=True)
        handles += [line(told, linestyle=dash, **THICK) for told, dash in pairs]
    legend(axes, handles)
    return axes


def drawn_values(axes: Axes) -> Numbers:
    """Return the finite heights of all lines that were drawn."""
    return np.concatenate([np.array([]), *map(_heights, axes.lines)])


def _heights(of: Line2D) -> Numbers:
    values = np.asarray(of.get_ydata(), dtype=float)
    return np.asarray(values[np.isfinite(values)])


def _draw_runs(
    axes: Axes, runs: Sequence[RunRecord], key: str, name: str, look: Look, methods: int
) -> None:
    """Draw the runs of one method. One that did not finish is dotted and left out of the mean."""
    finished = [curve(run, key) for run in runs if run.status == "finished"]
    others = [curve(run, key) for run in runs if run.status != "finished"]
    if methods <= FEW_METHODS and len(finished) > 1:
        axes.plot(*_joined(finished), color=look.colour, linestyle=look.dashes, **THIN)
    if others:
        axes.plot(*_joined(others), color=look.colour, **{**THIN, "alpha": 0.7, "linestyle": ":"})
    epochs, mean = mean_curve(runs, key)
    if epochs.size:
        # A point without neighbours is no line: it gets a dot.
        known = np.pad(np.isfinite(mean), 1)
        alone = np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:]).tolist()
        dots: dict[str, Any] = {"marker": "o", "markersize": 3, "markevery": alone} if alone else {}
        mark: dict[str, Any] = {"linestyle": look.dashes, **THICK, **dots}
        axes.plot(epochs, mean, color=look.colour, label=label(name), **mark)


def _handle(runs: Sequence[RunRecord], method: str, look: Look, is_counted: bool) -> Any:
    """Return a line for the legend, with the number of runs where methods differ in it."""
    n = sum(run.status == "finished" for run in runs)
    name = method if n == len(runs) else f"{method} ({n} of {len(runs)})"
    if is_counted and n == len(runs):
        name = f"{method} ({n} {'run' if n == 1 else 'runs'})"
    return line(name, look.colour, linestyle=look.dashes, **THICK)


def _joined(curves: Sequence[tuple[Numbers, Numbers]]) -> list[Numbers]:
    """Join curves into one line with gaps: less to write down than one line a seed."""
    return [
        np.concatenate([np.append(part, np.nan) for part in parts])
        for parts in zip(*curves, strict=True)
    ]
