"""The temperature that is planned when none is given."""

from __future__ import annotations

import math
from typing import Any

from annealtune.annealing import Automatic, Schedule
from annealtune.annealing.temperature import Clock

# Multiples of the median size of the first worsenings, and a quench to zero. Measured on tours
# (reversals, swaps), quadratic assignment, a spin glass, Rastrigin and Rosenbrock. A start above 1
# spends the first part of a run without effect, one below it begins frozen on some. Purely
# geometric cooling forces a choice between an end that is still warm for a continuous function and
# one that hurries through the temperatures at which a tour takes shape; the quench serves both.
START, END, QUENCH = 1.0, 0.02, 2.0
PROBES = 100

# The anytime schedule falls to START / 2 in this many iterations.
HALVING = 1000


def plan(moves: int | None, iterations_per_epoch: int | None) -> Automatic:
    """Plan the cooling of a search of a given length.

    Args:
        moves: how many moves the search may try; None if it ends by time alone.
        iterations_per_epoch: cool once in so many iterations, None for every iteration.

    Raises:
        ValueError: if epochs are asked for and there is no length to divide into them.

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
        return Automatic(probes=HALVING, start=START, end=END)
    # A short search must not spend itself on measuring.
    probes = max(1, min(PROBES, moves // 20))
    clock: Clock = "step" if iterations_per_epoch is None else "epoch"
    ticks = max(1, math.ceil(moves / (iterations_per_epoch or 1)))
    return Automatic(length=ticks, per=clock, probes=probes, start=START, end=END, quench=QUENCH)


def plan_of(schedule: Schedule | None) -> dict[str, Any] | None:
    """Return the arguments of a planned temperature, so that a saved search keeps its plan.

    Example:
        >>> plan_of(plan(1000, None))
        {'length': 1000, 'per': 'step', 'probes': 50, 'start': 1.0, 'end': 0.02, 'quench': 2.0}
    """
    if not isinstance(schedule, Automatic):
        return None
    names = ("length", "per", "probes", "start", "end", "quench")
    return {name: getattr(schedule, name) for name in names}
