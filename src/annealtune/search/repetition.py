"""The loop around the iterations of a search."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from annealtune.search.budget import Budget
from annealtune.search.result import IterationInfo, Result, StopReason, Walk

S = TypeVar("S")

Callback = Callable[[IterationInfo[S]], bool | None]


def repeat(
    iterate: Callable[[], IterationInfo[S]],
    walk: Walk[S],
    budget: Budget,
    callback: Callback[S] | None,
) -> Result[S]:
    """Iterate until the budget is spent or the callback returns True.

    Args:
        iterate: makes one iteration and counts it in the walk.
        walk: where the search stands.
        budget: what it may spend.
        callback: told of every iteration.
    """
    first = walk.iterations
    stopped_by: StopReason | None
    while (stopped_by := budget.spent(walk.iterations - first)) is None:
        info = iterate()
        if callback is not None and callback(info):
            stopped_by = "callback"
            break
    return Result(**vars(walk), stopped_by=stopped_by)
