"""SSA: moves without a gradient."""

from __future__ import annotations

from annealtune.optim import StepInfo, StochasticSA

from .annealed import Annealed
from .counted_minibatch import CountedMinibatch


class GradientFree(Annealed):
    """SSA, which minimizes the ``"loss"`` or the ``"error"``."""

    def __init__(self, optimizer: StochasticSA, objective: str) -> None:
        super().__init__(optimizer)
        self._objective = objective

    def step(self, minibatch: CountedMinibatch) -> StepInfo:
        """Make one move."""
        self._optimizer.step(minibatch.error if self._objective == "error" else minibatch.loss)
        return self._told(self._optimizer.last_step)

    def readings(self) -> dict[str, float]:
        """Return the temperature of the last move and the radius."""
        return {**super().readings(), "radius": self._optimizer.radius}
