"""The annealing at work: how likely a move was kept, how warm it was, what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from annealtune.studies.results import Study

from .curves import Looks, draw_methods, method_line
from .style import count_epochs, in_per_cent, in_powers, legend


def probability(
    axes: Axes, study: Study, methods: Sequence[str], key: str = "accept_probability"
) -> Axes:
    """Draw the mean probability of accepting a move.

    Args:
        axes: to draw into.
        study: whose runs are drawn.
        methods: the labels of those that have moves.
        key: ``"accept_probability"`` of all moves, or ``"worsening_accept_probability"``.
    """
    # In epochs without a worsening move there is no probability to be averaged: a run is left out
    # of the mean there.
    drawn = draw_methods(axes, study, methods, {key: {"over_known": True}})
    count_epochs(axes)
    axes.set_ylabel("accept probability")
    axes.set_ylim(-0.03, 1.03)
    in_per_cent(axes)
    legend(axes, [method_line(study, method) for method in drawn])
    return axes


def temperature(axes: Axes, study: Study, methods: Sequence[str]) -> Axes:
    """Draw the temperature of each epoch's last accept test; gaps are an infinite one."""
    drawn = draw_methods(axes, study, methods, {"temperature": {}})
    count_epochs(axes)
    axes.set_ylabel("temperature (nats)")
    if any(value > 0 for each in axes.lines for value in each.get_ydata()):
        in_powers(axes)
    legend(axes, [method_line(study, method) for method in drawn])
    return axes


def worsening_moves(axes: Axes, study: Study, methods: Sequence[str]) -> Axes:
    """Draw how many worsening moves of an epoch were accepted (solid) and rejected (dashed)."""
    looks: Looks = {"accepted_worsening": {}, "rejected_worsening": {"linestyle": "--"}}
    drawn = draw_methods(axes, study, methods, looks)
    count_epochs(axes)
    axes.set_ylabel("worsening moves (dashed: rejected)")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=7, min_n_ticks=1))
    legend(axes, [method_line(study, method) for method in drawn])
    return axes
