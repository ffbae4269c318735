"""How long a search goes on: iterations, evaluations, seconds, whichever ends first."""

from __future__ import annotations

import math
import time

from annealtune.annealing.arguments import count, not_negative
from annealtune.search.result import StopReason


class Budget:
    """What one call of ``run`` may spend, counted from the moment the budget is made.

    Args:
        iterations: the number of moves to try.
        evaluations: the number of energies to compute.
        seconds: the time to spend; looked at between two iterations.
        begun: whether the energy of the current solution is known already; if not, computing it
            costs one of the evaluations.

    Raises:
        TypeError: if an argument is no number.
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
    ) -> None:
        if iterations is None and evaluations is None and seconds is None:
            raise ValueError(
                "Annealer.run() must be told when to stop: give iterations, evaluations or "
                "seconds, got none of them"
            )
        self.moves: int | None = None
        self._reason: StopReason | None = None
        if iterations is not None:
            self.moves = count("Annealer.run(iterations=...)", iterations, least=0)
            self._reason = "iterations"
        if evaluations is not None:
            moves = count("Annealer.run(evaluations=...)", evaluations, least=1) - (not begun)
            if self.moves is None or moves < self.moves:
                self.moves, self._reason = moves, "evaluations"
        self._deadline = math.inf
        if seconds is not None:
            self._deadline = time.monotonic() + _finite_seconds(seconds)

    def spent(self, moves: int) -> StopReason | None:
        """Return what is used up after this many moves, None while there is something left."""
        if self.moves is not None and moves >= self.moves:
            return self._reason
        if self._deadline < math.inf and time.monotonic() >= self._deadline:
            return "seconds"
        return None


def _finite_seconds(seconds: float) -> float:
    checked = not_negative("Annealer.run(seconds=...)", seconds)
    if math.isinf(checked):
        raise ValueError(f"Annealer.run(seconds=...) must be finite, got {seconds!r}")
    return checked
