"""The methods whose moves are accepted or undone, and what they are judged by."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from annealtune.errors import ConfigError
from annealtune.optim import EmbeddedTuner, StepInfo, StochasticSA
from annealtune.optim.embedded import error
from annealtune.training.factories import import_factory, in_one_line, is_factory

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
    """A tuned optimizer whose moves are judged on the minibatch of the gradient."""

    def __init__(
        self, optimizer: EmbeddedTuner, criterion: Criterion, scaler: GradScaler | None = None
    ) -> None:
        super().__init__(optimizer, scaler)
        self._criterion = criterion
        self._compute_loss = optimizer.record(CountedMinibatch.loss, scaler=scaler)

    def step(self, minibatch: CountedMinibatch) -> StepInfo | None:
        """Make one move; None if the scaler skipped it because a gradient overflowed."""
        objective = self._objective(minibatch)
        if self._scaler is None:
            self._optimizer.step(minibatch.parts, objective=objective)
        else:
            self._optimizer.zero_grad()
            self._scaler.scale(self._compute_loss(minibatch)).backward()
            made = self._scaler.step(self._optimizer, objective=objective)
            self._scaler.update()
            if made is None:
                return None
        return self._told(self._optimizer.last_step)

    def _objective(self, minibatch: CountedMinibatch) -> Callable[[], float] | None:
        """Return what is compared where the closure does not tell it."""
        test = self._criterion
        is_told = test.on == "loss" or (test.on == "error" and self._scaler is None)
        return None if is_told else test.objective(minibatch)


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


class Criterion:
    """The accept test of a run.

    Args:
        method: name of the block, for messages.
        on: what is compared: ``"loss"``, ``"error"`` or the name of the user's function.
        model: what the user's function is given.

    Raises:
        ConfigError: if such a function cannot be imported.
    """

    def __init__(self, method: str, on: str, model: nn.Module) -> None:
        self.on = on
        self._key = f"{method}.accept_on"
        self._model = model
        self._function: Callable[..., Any] | None = None
        if is_factory(self.on):
            self._function = import_factory(self._key, self.on)

    def objective(self, minibatch: CountedMinibatch) -> Callable[[], float]:
        """Return a function that evaluates what is compared, for the present weights.

        A failure of the user's function, or a result that is not a number, is a `ConfigError`.
        """
        if self._function is None:
            return lambda: self._value(*minibatch.forward())
        function, what = self._function, f"{self._key} = {self.on!r}"

        def objective() -> float:
            try:
                with minibatch.counting(self._model), minibatch.autocast():
                    value = function(self._model, minibatch.samples)
            except Exception as failure:  # it is the user's: whatever it raises, say where
                raise ConfigError(
                    f"{what}: calling it with (model, minibatch) failed: {in_one_line(failure)}"
                ) from failure
            return _number(what, value)

        return objective

    def _value(self, loss: Tensor, outputs: Tensor, targets: Tensor) -> float:
        """Return what is compared. A loss that is not finite comes first: an error hides it."""
        value = loss.item()
        if self.on == "error" and math.isfinite(value):
            return error(outputs, targets).item()
        return value


def _number(what: str, value: Any) -> float:
    """Return what the user's function gave as a number."""
    shown = repr(value)
    if isinstance(value, Tensor):
        shown = f"a tensor of shape {tuple(value.shape)} and {value.dtype}"
        if value.numel() == 1 and value.dtype != torch.bool and not value.is_complex():
            return float(value.item())
    elif not isinstance(value, bool) and isinstance(value, numbers.Real):
        return float(value)
    raise ConfigError(
        f"{what}: must return a number or a tensor of one number, got "
        f"{shown if len(shown) <= 80 else shown[:60] + ' ...'}"
    )
