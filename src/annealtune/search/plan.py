"""The temperature that is planned when none is given."""

from __future__ import annotations

from typing import Any

from annealtune.annealing import Automatic, Schedule

# Multiples of the median size of the first worsenings. Measured on tours (reversals and swaps),
# quadratic assignment, a spin glass, Rastrigin and Rosenbrock: below 1 the start of a spin glass
# is already frozen, above 1 the first part of the run is spent without effect; an end of 0.1 is
# still warm on every continuous function, one below 0.001 cools tours too fast.
START = 1.0
END = 0.003
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
    if iterations_per_epoch is None:
        return Automatic(length=max(1, moves), per="step", probes=probes, start=START, end=END)
    epochs = max(1, -(-moves // iterations_per_epoch))
    return Automatic(length=epochs, per="epoch", probes=probes, start=START, end=END)


def plan_of(schedule: Schedule | None) -> dict[str, Any] | None:
    """Return the arguments of a planned temperature, so that a saved search keeps its plan.

    Example:
        >>> plan_of(plan(1000, None))
        {'length': 1000, 'per': 'step', 'probes': 50, 'start': 1.0, 'end': 0.003}
    """
    if not isinstance(schedule, Automatic):
        return None
    return {name: getattr(schedule, name) for name in ("length", "per", "probes", "start", "end")}
