"""The methods whose moves are accepted or undone."""

from __future__ import annotations

import math
from typing import Any

from torch.amp import GradScaler

from annealtune.optim import EmbeddedTuner, StepInfo, StochasticSA

from .method import CountedMinibatch, Method


class Annealed(Method):
    """What they have in common: they cool, and tell the temperature of their last move."""

    def __init__(
        self, optimizer: EmbeddedTuner | StochasticSA, scaler: GradScaler | None = None
    ) -> None:
        super().__init__(optimizer, scaler)
        self._temperature = math.nan

    def end_epoch(self) -> None:
        """Cool."""
        self._optimizer.cool()

    def readings(self) -> dict[str, float]:
        """Return the temperature of the last move."""
        return {"temperature": self._temperature}

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs."""
        return {**super().state_dict(), "temperature": self._temperature}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        super().load_state_dict(state)
        self._temperature = state["temperature"]

    def _told(self, info: StepInfo) -> StepInfo:
        self._temperature = info.temperature
        return info


class Tuned(Annealed):
    """A tuned optimizer whose moves are judged by the ``"loss"`` or the ``"error"``.

    Both are those of the minibatch of the gradient.
    """

    def __init__(
        self, optimizer: EmbeddedTuner, accept_on: str, scaler: GradScaler | None = None
    ) -> None:
        super().__init__(optimizer, scaler)
        self._accept_on = accept_on
        self._compute_loss = optimizer.record(CountedMinibatch.loss, scaler=scaler)

    def step(self, minibatch: CountedMinibatch) -> StepInfo | None:
        """Make one move; None if the scaler skipped it because a gradient overflowed."""
        if self._scaler is None:
            self._optimizer.step(minibatch.parts)
        else:
            # There is no closure whose outputs would tell the error.
            objective = minibatch.finite_error if self._accept_on == "error" else None
            self._optimizer.zero_grad()
            self._scaler.scale(self._compute_loss(minibatch)).backward()
            made = self._scaler.step(self._optimizer, objective=objective)
            self._scaler.update()
            if made is None:
                return None
        return self._told(self._optimizer.last_step)


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
