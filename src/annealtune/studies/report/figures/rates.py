"""The learning rate over the epochs: the one that was used, or those of the accepted steps."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from annealtune.studies.records import RunRecord, Study
from annealtune.studies.report.thinning import shown_records
from annealtune.studies.statistics.measures import number

from .curves import FEW_METHODS, Numbers, has
from .end_labels import EndLabel, name_ends
from .hover import show_values
from .looks import looks_of
from .style import THICK, THIN, count_epochs, power_of_ten

# A rate that decays to nothing is followed this far below the lowest peak.
_DECAY = 30.0


def rate_curve(run: RunRecord) -> tuple[Numbers, Numbers]:
    """Return epochs and rates of a run.

    The rate at the end of each epoch; of a run over H the mean of the moves that were accepted in
    the epoch, and in records that do not have it their geometric mean.
    """
    points: dict[float, float] = {}
    for record in shown_records(run.metrics):
        epoch, rate = number(record, "epoch"), number(record, "rate")
        if epoch is not None and rate is not None and rate > 0:
            points[epoch] = rate
    for line in () if points else shown_records(run.moves):
        epoch = number(line, "epoch")
        settings = line.get("settings")
        logs = [
            (accepted, math.log(rate))
            for move in (settings if isinstance(settings, list) else [])
            if isinstance(move, dict) and isinstance(move.get("setting"), dict)
            if (accepted := number(move, "accepted")) and (rate := number(move["setting"], "lr"))
            if rate > 0
        ]
        if epoch is not None and logs:
            total = sum(accepted for accepted, _ in logs)
            points[epoch] = math.exp(sum(accepted * log for accepted, log in logs) / total)
    return np.array(list(points)), np.array(list(points.values()))


def methods_with_rates(study: Study) -> list[str]:
    """Return the methods of which a rate is known."""
    return [m for m in study.methods if any(rate_curve(run)[0].size for run in study.of(m))]


def first_run(study: Study, method: str) -> RunRecord:
    """Return the first run of a method whose rate is known."""
    return next(run for run in study.of(method) if rate_curve(run)[0].size)


def is_constant(study: Study, method: str) -> bool:
    """Whether all runs of a method have the same rate in all epochs."""
    found = [rates for run in study.of(method) if (rates := rate_curve(run)[1]).size]
    lowest, highest = (end(float(end(rates)) for rates in found) for end in (min, max))
    return highest <= 1.001 * lowest


def told(study: Study, methods: Sequence[str]) -> list[str]:
    """Say what `draw` draws: not all rates are those at the end of an epoch."""
    if not methods:
        return []
    counted = [m for m in methods if not has(study, [m], "rate")]
    means = [m for m in methods if m not in counted and has(study, [m], "acceptance_rate")]
    all_are_means = len(means) + len(counted) == len(methods)
    return [
        "The rate, on a logarithmic axis."
        if all_are_means
        else "The rate at the end of each epoch, on a logarithmic axis; what decays to nothing "
        "runs out at the bottom.",
        _of_methods_over_h(means, "mean"),
        _of_methods_over_h(counted, "geometric mean"),
    ]


def draw(axes: Axes, study: Study, methods: Sequence[str]) -> Axes:
    """Draw the rates of methods: a thin line for each seed, a thick one for their mean."""
    axes.set_yscale("log")  # before anything is drawn: one rate alone has no range
    looks = looks_of(study)
    ends = []
    peaks, lowest = [], math.inf
    for method in methods:
        color = looks[method].colour
        known = [(r, c) for r in study.of(method) if (c := rate_curve(r))[0].size]
        finished = [curve for run, curve in known if run.status == "finished"]
        if len(known) > 1 and len(methods) <= FEW_METHODS:
            for run, curve in known:
                axes.plot(*curve, color=color, **_thin(run))
        curves = finished or [known[0][1]]
        common = sorted(set.intersection(*(set(epochs.tolist()) for epochs, _ in curves)))
        if not common:
            continue
        rows = [rates[np.isin(epochs, common)] for epochs, rates in curves]
        mean = np.exp(np.mean(np.log(rows), axis=0))
        axes.plot(common, mean, color=color, linestyle=looks[method].dashes, **THICK)
        of = f", mean of {len(curves)}" if len(curves) > 1 else ""
        texts = [f"epoch {e:g}: {r:.2g}{of}" for e, r in zip(common, mean, strict=True)]
        show_values(axes, method, color, common, mean.tolist(), texts, is_line=True)
        peaks += [float(rates.max()) for _, rates in curves]
        lowest = min(lowest, float(mean.min()))
        ends.append((method, color, mean))
    bottom = max(lowest / 1.3, min(peaks) / _DECAY)
    axes.set_ylim(bottom, max(peaks) * 1.5)
    count_epochs(axes)
    axes.set_ylabel("learning rate")
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: power_of_ten(rate)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    # A line that decays leaves the axis at its bottom; its name stands where the line was highest
    # above that of its neighbours.
    name_ends(axes, [EndLabel(m, c, float(np.median(mean))) for m, c, mean in ends])
    return axes


def _of_methods_over_h(methods: Sequence[str], mean: str) -> str:
    names = f" ({', '.join(methods)})" if len(methods) < 4 else ""
    return f"Of methods over H{names}: the {mean} of the accepted moves." if methods else ""


def _thin(run: RunRecord) -> dict[str, Any]:
    return THIN if run.status == "finished" else {**THIN, "linestyle": ":"}
