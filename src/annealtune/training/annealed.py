"""The methods whose moves are accepted or undone."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler

from annealtune.optim import EmbeddedTuner, StepInfo, StochasticSA
from annealtune.training.acceptance import Acceptance
from annealtune.training.loop import Loop
from annealtune.training.minibatch import Minibatch


class Annealed:
    """What they have in common.

    Args:
        optimizer: makes the moves.
    """

    recovers = False
    races = ()

    def __init__(self, optimizer: EmbeddedTuner | StochasticSA) -> None:
        self._optimizer: Any = optimizer
        self._temperature = math.nan

    def prepare(self) -> None:
        """Settle nothing before the minibatch is made."""

    def end_epoch(self) -> None:
        """Cool."""
        self._optimizer.cool()

    def judged(self, batches: Iterable[Any]) -> AbstractContextManager[None]:
        """Leave the last weights."""
        return contextlib.nullcontext()

    def readings(self) -> dict[str, float]:
        """Return the temperature of the last move."""
        return {"temperature": self._temperature}

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state."""
        return {"optimizer": self._optimizer.state_dict(), "temperature": self._temperature}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._temperature = state["temperature"]

    def _told(self, info: StepInfo) -> StepInfo:
        self._temperature = info.temperature
        return info


class GradientFree(Annealed):
    """SSA.

    Args:
        optimizer: makes the moves.
        objective: what is minimized, ``"loss"`` or ``"error"``.
    """

    def __init__(self, optimizer: StochasticSA, objective: str) -> None:
        super().__init__(optimizer)
        self._objective = objective

    def step(self, minibatch: Minibatch) -> StepInfo:
        """Make one move."""
        self._optimizer.step(getattr(minibatch, self._objective))
        return self._told(self._optimizer.last_step)

    def readings(self) -> dict[str, float]:
        """Return the temperature of the last move and the radius."""
        return {**super().readings(), "radius": self._optimizer.radius}


class Tuned(Annealed):
    """A tuned optimizer whose moves are judged on the minibatch of the gradient, or held out.

    Args:
        optimizer: makes the moves.
        acceptance: what they are judged by.
        loop: what H may set besides the options of the optimizer.
        has_loop_options: whether it does.
        scaler: scales the loss of fp16 runs.
    """

    def __init__(
        self,
        optimizer: EmbeddedTuner,
        acceptance: Acceptance,
        loop: Loop,
        *,
        has_loop_options: bool,
        scaler: GradScaler | None = None,
    ) -> None:
        super().__init__(optimizer)
        self._acceptance = acceptance
        self._loop = loop
        self._has_loop_options = has_loop_options
        self._scaler = scaler

    def prepare(self) -> None:
        """Pick the next setting, if the images or their forward depend on it."""
        if self._has_loop_options:
            self._optimizer.prepare()

    def step(self, minibatch: Minibatch) -> StepInfo | None:
        """Make one move; None if the scaler skipped it because a gradient overflowed."""
        before = self._optimizer.last_step
        if self._scaler is None:
            self._optimizer.step(
                lambda: self._differentiable(minibatch), objective=self._objective(minibatch)
            )
        else:
            self._scaled_step(minibatch, self._scaler)
        info = self._optimizer.last_step
        return None if info is before or info is None else self._told(info)

    def judged(self, batches: Iterable[Any]) -> AbstractContextManager[None]:
        """Give the model the average of its weights, if one is kept."""
        if self._optimizer.averages:
            averaged: AbstractContextManager[None] = self._optimizer.averaged(batches)
            return averaged
        return super().judged(batches)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of optimizer and scaler."""
        scaler = None if self._scaler is None else self._scaler.state_dict()
        return {**super().state_dict(), "scaler": scaler}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        super().load_state_dict(state)
        if self._scaler is not None:
            self._scaler.load_state_dict(state["scaler"])

    def _differentiable(self, minibatch: Minibatch) -> tuple[Tensor, Tensor, Tensor]:
        """Compute loss and outputs; clip the gradient where there is one to clip."""
        loss, scores, labels = minibatch.parts()
        if self._loop.clips and torch.is_grad_enabled():  # not when the loss is measured again
            self._optimizer.zero_grad()
            loss.backward()
            self._clip()
        return loss, scores, labels

    def _objective(self, minibatch: Minibatch) -> Callable[[], float] | None:
        """Return what is compared where the closure does not tell it."""
        acceptance = self._acceptance
        tells_error = acceptance.on == "error" and self._scaler is None
        if acceptance.batch == "same" and (acceptance.on == "loss" or tells_error):
            return None
        return acceptance.objective(minibatch)

    def _scaled_step(self, minibatch: Minibatch, scaler: GradScaler) -> None:
        self._optimizer.zero_grad()
        loss = minibatch.loss()
        objective = self._objective(minibatch)
        compared = {"probe": minibatch.loss} if objective is None else {"objective": objective}
        scaler.scale(loss).backward()
        if self._loop.clips:
            scaler.unscale_(self._optimizer)
            self._clip()
        scaler.step(self._optimizer, loss=loss.detach(), **compared)
        scaler.update()

    def _clip(self) -> None:
        self._loop.clip(p for group in self._optimizer.param_groups for p in group["params"])
