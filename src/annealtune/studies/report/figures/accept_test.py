"""The accept test at work: how likely a move was kept, at which temperature, what became of it."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from annealtune.studies.records import Study
from annealtune.studies.statistics.measures import number

from .curves import LineLook, Lines, draw_methods, name_methods
from .style import in_per_cent, in_powers


def probability(
    axes: Axes, study: Study, methods: Sequence[str], key: str = "accept_probability"
) -> Axes:
    """Draw the mean probability of accepting a move, or a worsening one."""
    # In epochs without a worsening move there is no probability to be averaged: a run is left out
    # of the mean there.
    draw_methods(axes, study, methods, {key: LineLook(over_known=True)})
    axes.set_ylabel("accept probability")
    axes.set_ylim(-0.03, 1.03)
    in_per_cent(axes)
    name_methods(axes, study, methods, key)
    return axes


def temperature(axes: Axes, study: Study, methods: Sequence[str]) -> Axes:
    """Draw the temperature of each epoch's last accept test; gaps are an infinite one."""
    draw_methods(axes, study, methods, {"temperature": LineLook()})
    axes.set_ylabel("temperature (nats)")
    if any((np.asarray(each.get_ydata()) > 0).any() for each in axes.lines):
        in_powers(axes)
    warm = [method for method in methods if _is_positive(study, method)]
    name_methods(axes, study, warm or methods, "temperature")
    return axes


def worsening_moves(axes: Axes, study: Study, methods: Sequence[str]) -> Axes:
    """Draw how many worsening moves of an epoch were accepted (solid) and rejected (dotted)."""
    lines: Lines = {
        "accepted_worsening": LineLook(suffix=", accepted"),
        "rejected_worsening": LineLook(":", suffix=", rejected"),
    }
    draw_methods(axes, study, methods, lines)
    axes.set_ylabel("worsening moves (dotted: rejected)")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=7, min_n_ticks=1))
    name_methods(axes, study, methods, "rejected_worsening")
    return axes


def _is_positive(study: Study, method: str) -> bool:
    """Whether a method has a temperature that a logarithmic axis can show."""
    values = [number(record, "temperature") for run in study.of(method) for record in run.metrics]
    return any(value is not None and value > 0 for value in values)
