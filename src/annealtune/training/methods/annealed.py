"""The methods whose moves are accepted or undone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler

from annealtune.optim import EmbeddedTuner, StepInfo, StochasticSA

from .counted_minibatch import CountedMinibatch
from .criterion import Criterion
from .loop_options import LoopOptions
from .method import Method


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
    """A tuned optimizer whose moves are judged on the minibatch of the gradient, or held out.

    H may set the options of the loop besides those of the optimizer.
    """

    def __init__(
        self,
        optimizer: EmbeddedTuner,
        criterion: Criterion,
        loop: LoopOptions,
        scaler: GradScaler | None = None,
    ) -> None:
        super().__init__(optimizer, scaler)
        self._criterion = criterion
        self._loop = loop

    def prepare(self) -> None:
        """Pick the next setting, if the images or their forward depend on it."""
        if self._loop.names:
            self._optimizer.prepare()

    def step(self, minibatch: CountedMinibatch) -> StepInfo | None:
        """Make one move; None if the scaler skipped it because a gradient overflowed."""
        if self._scaler is None:
            self._optimizer.step(
                lambda: self._differentiable(minibatch), objective=self._objective(minibatch)
            )
        elif not self._scaled_step(minibatch, self._scaler):
            return None
        return self._told(self._optimizer.last_step)

    def _differentiable(self, minibatch: CountedMinibatch) -> tuple[Tensor, Tensor, Tensor]:
        """Compute loss and outputs; clip the gradient where there is one to clip."""
        loss, outputs, targets = minibatch.parts()
        if self._loop.clips and torch.is_grad_enabled():  # not when the loss is measured again
            self._optimizer.zero_grad()
            loss.backward()
            self._clip()
        return loss, outputs, targets

    def _objective(self, minibatch: CountedMinibatch) -> Callable[[], float] | None:
        """Return what is compared where the closure does not tell it."""
        test = self._criterion
        tells_error = test.on == "error" and self._scaler is None
        if test.batch == "same" and (test.on == "loss" or tells_error):
            return None
        return test.objective(minibatch)

    def _scaled_step(self, minibatch: CountedMinibatch, scaler: GradScaler) -> bool:
        """Tell whether a move was made: the scaler skips one whose gradient overflowed."""
        self._optimizer.zero_grad()
        loss = minibatch.loss()
        objective = self._objective(minibatch)
        compared = {"probe": minibatch.loss} if objective is None else {"objective": objective}
        scaler.scale(loss).backward()
        if self._loop.clips:
            scaler.unscale_(self._optimizer)
            self._clip()
        is_made = scaler.step(self._optimizer, loss=loss.detach(), **compared) is not None
        scaler.update()
        return is_made

    def _clip(self) -> None:
        self._loop.clip(p for group in self._optimizer.param_groups for p in group["params"])
