"""A number over the epochs: a thin line for each seed, a thick line for their mean."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from annealtune.studies.records import RunRecord, Study
from annealtune.studies.report.thinning import shown_records
from annealtune.studies.statistics.measures import number

from .end_labels import EndLabel, name_ends
from .hover import show_values
from .limits import Limits, curve_limits
from .looks import Look, looks_of
from .style import THICK, THIN, count_epochs, in_per_cent, in_powers

Numbers = NDArray[np.float64]


class LineLook(NamedTuple):
    """How the values of one key are drawn.

    Attributes:
        dashes: a line style in place of the method's own.
        over_known: whether a run without a value in an epoch is left out of the mean there.
        suffix: what is told after the method's name.
    """

    dashes: Any = None
    over_known: bool = False
    suffix: str = ""


Lines = dict[str, LineLook]
# With more methods than this, two lines a method or a line a seed are a thicket.
FEW_METHODS = 6
# Points of all seeds of a method in one figure.
_MOST_POINTS = 20_000


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


def draw_methods(axes: Axes, study: Study, methods: Sequence[str], lines: Lines) -> None:
    """Draw the runs of several methods, a thick line for the mean of each.

    Of many methods only the means are drawn: with every seed they would be a thicket.

    `lines` are keys of ``metrics.jsonl``, each with how its values are drawn and told.
    """
    looks = looks_of(study)
    with_seeds = len(methods) <= FEW_METHODS
    for method in methods:
        for key, look in lines.items():
            _draw_runs(axes, study, method, key, looks[method], look, with_seeds=with_seeds)
    count_epochs(axes)


def name_methods(axes: Axes, study: Study, methods: Sequence[str], key: str) -> None:
    """Write the names of methods at the ends of their lines; the limits must be final."""
    looks = looks_of(study)
    labels = []
    for method in methods:
        end = _end(study.of(method), key)
        if end is not None:
            runs = study.of(method)
            n = sum(run.status == "finished" for run in runs)
            name = method if n == len(runs) else f"{method} ({n} of {len(runs)})"
            labels.append(EndLabel(name, looks[method].colour, end))
    name_ends(axes, labels)


def over_epochs(axes: Axes, study: Study, methods: Sequence[str], key: str, title: str) -> Axes:
    """Draw one number of several methods over the epochs."""
    draw_methods(axes, study, methods, {key: LineLook()})
    _limit(axes, limits_of(study, methods, key), key)
    axes.set_ylabel(title)
    name_methods(axes, study, methods, key)
    return axes


def train_against_validation(
    axes: Axes, study: Study, methods: Sequence[str], quantity: str
) -> Axes:
    """Draw loss or accuracy on the training set (dotted) and on the validation set (solid)."""
    train, validation = f"train_eval_{quantity}", f"validation_{quantity}"
    lines = {train: LineLook(":", suffix=", training"), validation: LineLook()}
    draw_methods(axes, study, methods, lines)
    _limit(axes, limits_of(study, methods, train, validation), quantity)
    axes.set_ylabel(f"{quantity} (dotted: training)")
    name_methods(axes, study, methods, validation)
    return axes


def limits_of(study: Study, methods: Sequence[str], *keys: str) -> Limits | None:
    """Return the limits of an axis for the curves of methods: of each seed where it is drawn."""
    of_seeds = len(methods) <= FEW_METHODS
    curves = [
        values
        for key in keys
        for method in methods
        for values in (
            [curve(run, key)[1] for run in study.of(method)]
            if of_seeds
            else [middle_curve(study.of(method), key)[1]]
        )
    ]
    return curve_limits(curves, may_be_log=all(key.endswith("loss") for key in keys))


def middle_curve(runs: Sequence[RunRecord], key: str) -> tuple[Numbers, Numbers]:
    """Return the mean of the finished runs; without one, the first curve there is."""
    epochs, mean = mean_curve(runs, key)
    if np.isfinite(mean).any():
        return epochs, mean
    found = [each for run in runs if np.isfinite((each := curve(run, key))[1]).any()]
    return found[0] if found else (np.array([]), np.array([]))


def value_text(key: str, value: float) -> str:
    """Return a number of ``metrics.jsonl`` as it is shown."""
    if key.endswith(("accuracy", "probability")):
        return f"{100 * value:.2f} %"
    return f"{value:.4g}"


def _draw_runs(
    axes: Axes,
    study: Study,
    method: str,
    key: str,
    look: Look,
    line: LineLook,
    *,
    with_seeds: bool,
) -> None:
    """Draw the runs of one method. One that did not finish is dotted and left out of the mean."""
    runs = study.of(method)
    finished = [run for run in runs if run.status == "finished"]
    others = [run for run in runs if run.status != "finished"]
    curves = [curve(run, key) for run in (*finished, *others)]
    style = line.dashes or look.dashes
    if with_seeds and len(finished) > 1:
        thin = {**THIN, "linestyle": line.dashes or "-"}
        axes.plot(*_joined(curves[: len(finished)]), color=look.colour, **thin)
    if others:
        dotted = {**THIN, "alpha": 0.7, "linestyle": ":"}
        axes.plot(*_joined(curves[len(finished) :]), color=look.colour, **dotted)
    epochs, mean = mean_curve(finished, key, over_known=line.over_known)
    if epochs.size:
        alone: dict[str, Any] = (
            {"marker": "o", "markersize": 4} if np.isfinite(mean).sum() < 2 else {}
        )
        axes.plot(epochs, mean, color=look.colour, linestyle=style, **THICK, **alone)
        of = f", mean of {len(finished)}" if len(finished) > 1 else ""
        texts = [
            f"epoch {e:g}: {value_text(key, v)}{of}" for e, v in zip(epochs, mean, strict=True)
        ]
        name = method + line.suffix
        show_values(axes, name, look.colour, epochs.tolist(), mean.tolist(), texts, is_line=True)


def _end(runs: Sequence[RunRecord], key: str) -> float | None:
    """Return the last value of a method's line."""
    _, values = middle_curve(runs, key)
    known = values[np.isfinite(values)]
    return float(known[-1]) if known.size else None


def _limit(axes: Axes, limits: Limits | None, key: str) -> None:
    if limits is not None:
        if limits.is_log:
            in_powers(axes)
        axes.set_ylim(limits.low, limits.high)
    if not key.endswith("loss"):
        in_per_cent(axes)


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
