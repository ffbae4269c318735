"""How long a search goes on: the loop around its iterations, and its limits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from annealtune.annealing.arguments import count, not_negative
from annealtune.search.result import IterationInfo, Result, StopReason, Walk

S = TypeVar("S")

Callback = Callable[[IterationInfo[S]], bool | None]


class Costs(NamedTuple):
    """How many energies a search computes.

    Attributes:
        owner: name of the search's class, for messages.
        initial: energies computed before the first iteration.
        iteration: energies computed in one iteration.
    """

    owner: str
    initial: int
    iteration: int


ANNEALER = Costs("Annealer", initial=1, iteration=1)


class Budget:
    """What one call of ``run`` may spend, counted from the moment the budget is made.

    Args:
        iterations: the number of iterations: of moves to try, or of generations.
        evaluations: the number of energies to compute.
        seconds: the time to spend; looked at between two iterations.
        begun: whether the initial energies are known already; if not, they count as
            evaluations.
        costs: what an iteration costs, by default that of an `Annealer`.

    Raises:
        TypeError: if an argument is not a number.
        ValueError: if nothing is limited or an argument breaks its rule.

    Example:
        >>> Budget(evaluations=100, begun=False).moves
        99
        >>> Budget(iterations=5).spent(moves=5)
        'iterations'
    """

    def __init__(
        self,
        iterations: int | None = None,
        *,
        evaluations: int | None = None,
        seconds: float | None = None,
        begun: bool = True,
        costs: Costs = ANNEALER,
    ) -> None:
        run = f"{costs.owner}.run"
        if iterations is None and evaluations is None and seconds is None:
            raise ValueError(
                f"{run}() must be told when to stop: give iterations, evaluations or seconds, got "
                "none of them"
            )
        self.moves: int | None = None
        self._reason: StopReason | None = None
        if iterations is not None:
            self.moves = count(f"{run}(iterations=...)", iterations, least=0)
            self._reason = "iterations"
        if evaluations is not None:
            initial = 0 if begun else costs.initial
            energies = count(f"{run}(evaluations=...)", evaluations, least=max(initial, 1))
            moves = (energies - initial) // costs.iteration
            if self.moves is None or moves < self.moves:
                self.moves, self._reason = moves, "evaluations"
        self._deadline = math.inf
        if seconds is not None:
            self._deadline = time.monotonic() + _finite(f"{run}(seconds=...)", seconds)

    def spent(self, moves: int) -> StopReason | None:
        """Return the limit that this many moves have reached, None if none is reached."""
        if self.moves is not None and moves >= self.moves:
            return self._reason
        if self._deadline < math.inf and time.monotonic() >= self._deadline:
            return "seconds"
        return None


def repeat(
    iterate: Callable[[], IterationInfo[S]],
    walk: Walk[S],
    budget: Budget,
    callback: Callback[S] | None,
) -> Result[S]:
    """Iterate until the budget is spent or the callback returns True.

    Args:
        iterate: makes one iteration and counts it in the walk.
        walk: the state of the search.
        budget: what it may spend.
        callback: called with every iteration.
    """
    first = walk.iterations
    stopped_by: StopReason | None
    while (stopped_by := budget.spent(walk.iterations - first)) is None:
        info = iterate()
        if callback is not None and callback(info):
            stopped_by = "callback"
            break
    return Result(**vars(walk), stopped_by=stopped_by)


def _finite(argument: str, seconds: float) -> float:
    checked = not_negative(argument, seconds)
    if math.isinf(checked):
        raise ValueError(f"{argument} must be finite, got {seconds!r}")
    return checked
