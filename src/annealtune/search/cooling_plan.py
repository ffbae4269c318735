"""The temperature that is planned when none is given."""

from __future__ import annotations

import math
from typing import Any

from annealtune.annealing import Automatic, Schedule
from annealtune.annealing.temperature import Clock

# T = unit * 0.4 * (1 - x)^2, x the share of the run that is over. Of some forty shapes this was the
# best compromise on eleven problems: tours (reversals, swaps), quadratic assignment, spin glasses,
# Rastrigin and Rosenbrock. A start of 1 or more spends the first part of the run without effect,
# 0.2 begins frozen on spin glasses. Geometric cooling forces a choice between an end that is still
# warm for a continuous function and one that hurries through the temperatures at which a tour takes
# shape; a square that ends at 0 serves both.
START, QUENCH = 0.4, 2.0
PROBES = 100

# Without a length: one unit at first, half of it after this many iterations.
HALVING = 1000


def plan(moves: int | None, iterations_per_epoch: int | None) -> Automatic:
    """Plan the cooling of a search of a given length.

    Args:
        moves: how many moves the search may try; None if it ends by time alone.
        iterations_per_epoch: cool once in this many iterations, None for every iteration.

    Raises:
        ValueError: if there are epochs but no length to divide into them.

    Example:
        >>> plan(1000, iterations_per_epoch=300).length
        4
    """
    if moves is None:
        if iterations_per_epoch is not None:
            raise ValueError(
                "Annealer(iterations_per_epoch=...) must be left out, or run() be given iterations "
                f"or evaluations: seconds alone plan no epochs, got {iterations_per_epoch!r}"
            )
        return Automatic(probes=HALVING, start=1.0, end=1.0)
    # A short search must not be used up by measuring.
    probes = max(1, min(PROBES, moves // 20))
    clock: Clock = "step" if iterations_per_epoch is None else "epoch"
    ticks = max(1, math.ceil(moves / (iterations_per_epoch or 1)))
    return Automatic(length=ticks, per=clock, probes=probes, start=START, end=START, quench=QUENCH)


def plan_of(schedule: Schedule | None) -> dict[str, Any] | None:
    """Return the arguments of a planned temperature, so that a saved search keeps its plan.

    Example:
        >>> plan_of(plan(1000, None))
        {'length': 1000, 'per': 'step', 'probes': 50, 'start': 0.4, 'end': 0.4, 'quench': 2.0}
    """
    if not isinstance(schedule, Automatic):
        return None
    names = ("length", "per", "probes", "start", "end", "quench")
    return {name: getattr(schedule, name) for name in names}
