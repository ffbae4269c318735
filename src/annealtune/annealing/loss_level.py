"""Where the loss of the minibatches is at present, and how far they scatter."""

from __future__ import annotations

import math
from typing import Any

from annealtune.annealing.fading import deviation, faded

# Worse than so many times the size of the loss is no longer a measure of anything.
_WORST = 5.0
# Changes are never compared with less than this share of the highest level: late in a run the
# loss of one minibatch is next to nothing and that of another is not.
_SHARE_OF_HIGHEST = 0.1
# A loss is out of place beyond so many deviations and so many times the highest level.
_DEVIATIONS = 6.0
_TIMES_HIGHEST = 10.0
_LEAST = 10


class LossLevel:
    """Mean and deviation of the last losses, older ones forgotten.

    Args:
        forgetting: weight of a loss when the next one comes.

    Example:
        >>> level = LossLevel()
        >>> for loss in [1.0, 1.2] * 5:
        ...     level.see(loss)
        >>> [level.is_exceeded_by(loss) for loss in (1.4, 19.0, math.nan)]
        [False, True, True]
    """

    def __init__(self, forgetting: float = 0.95) -> None:
        self._forgetting = forgetting
        self._sums = [0.0] * 3  # of 1, the loss, its square about the first one
        self._origin = 0.0  # squares are taken about it, so that large losses do not cancel
        self.highest = 0.0  # size of the level in the whole run
        self.seen = 0

    def see(self, loss: float) -> None:
        """Take in the loss of a minibatch."""
        if not math.isfinite(loss):
            return
        if not self.seen:
            self._origin = loss
        distance = loss - self._origin
        terms = (1.0, distance, distance * distance)
        self._sums = faded(self._sums, terms, self._forgetting)
        self.seen += 1
        self.highest = max(self.highest, abs(self.mean))

    @property
    def mean(self) -> float:
        """The level; NaN before the first loss."""
        weight, total, _ = self._sums
        return self._origin + total / weight if weight else math.nan

    @property
    def deviation(self) -> float:
        """Standard deviation about the level; 0 before the second loss."""
        return deviation(*self._sums) if self.seen else 0.0

    def size(self, loss: float) -> float:
        """Return what changes of this loss are compared with."""
        return max(abs(loss), _SHARE_OF_HIGHEST * self.highest)

    def within_reason(self, worsening: float) -> float:
        """Return a worsening from which something can be learned, also where the loss broke."""
        worst = _WORST * self.highest or 1.0
        return min(worsening, worst) if worsening > -math.inf else worst  # also NaN is the worst

    def is_exceeded_by(self, loss: float) -> bool:
        """Tell whether a loss lies so far above the level that something has broken.

        Losses of minibatches have long tails: many deviations alone happen in every run.
        """
        if not math.isfinite(loss):
            return True
        if self.seen < _LEAST:
            return False
        far = loss - self.mean > _DEVIATIONS * self.deviation
        return far and abs(loss) > _TIMES_HIGHEST * self.highest

    def state_dict(self) -> dict[str, Any]:
        """Return the sums as plain data."""
        return {
            "sums": list(self._sums),
            "origin": self._origin,
            "highest": self.highest,
            "seen": self.seen,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._sums = list(state["sums"])
        self._origin, self.highest, self.seen = state["origin"], state["highest"], state["seen"]
