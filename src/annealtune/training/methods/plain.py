"""The methods that tune nothing: a torch optimizer whose rate follows a fixed shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from annealtune.optim.average import WeightAverage
from annealtune.optim.guard import EVERY
from annealtune.optim.schedule import default_warm_up, share_left, share_of_rate
from annealtune.training.config import RunConfig
from annealtune.training.config.blocks import AdamwOptions, ScheduledSgdOptions, SgdOptions

from .method import CountedMinibatch, Method


def build_plain(
    config: RunConfig, model: nn.Module, steps_per_epoch: int, scaler: GradScaler | None
) -> Plain:
    """Build sgd, scheduled-sgd or adamw."""
    kind = torch.optim.AdamW if config.method == "adamw" else torch.optim.SGD
    arguments = config.options.model_dump(exclude={"factor", "milestones", "schedule"})
    optimizer = kind(model.parameters(), **arguments)
    average = WeightAverage(config.method, optimizer, model) if _is_held(config) else None
    total = config.epochs * steps_per_epoch
    return Plain(optimizer, _shape(config, steps_per_epoch), total, scaler, average)


def _shape(config: RunConfig, steps_per_epoch: int) -> Callable[[int], float]:
    """Return the factor of the first rate at each step, from 0."""
    options = config.options
    if isinstance(options, SgdOptions):
        return lambda _: 1.0
    if isinstance(options, ScheduledSgdOptions):
        factor = options.factor
        starts = [math.ceil(share * config.epochs - 1e-9) for share in options.milestones]
        return lambda step: factor ** sum(step // steps_per_epoch >= start for start in starts)
    total = config.epochs * steps_per_epoch
    if _is_held(config):
        return lambda step: share_of_rate(step, total, warm_up=default_warm_up(total))
    return lambda step: 0.5 * (1 + math.cos(math.pi * step / total))


def _is_held(config: RunConfig) -> bool:
    return isinstance(config.options, AdamwOptions) and config.options.schedule == "held"


class Plain(Method):
    """A torch optimizer whose first rate is multiplied by the shape at each step.

    Args:
        optimizer: makes the steps.
        shape: the factor of the rate at each step, from 0.
        total_steps: planned length.
        scaler: scales the loss of fp16 runs.
        average: of the weights, by which the run is judged; without one its last weights are.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        shape: Callable[[int], float],
        total_steps: int,
        scaler: GradScaler | None,
        average: WeightAverage | None,
    ) -> None:
        super().__init__(optimizer, scaler, None if average is None else average.swapped_in)
        self._average = average
        self._first_rate = optimizer.param_groups[0]["lr"]
        self._shape = shape
        self._total_steps = total_steps
        self._step = 0

    def step(self, minibatch: CountedMinibatch) -> None:
        """Make one plain step."""
        if self._average is not None and self._step % EVERY == 0:
            self._average.add(share_left(self._step, self._total_steps))
        for group in self._optimizer.param_groups:
            group["lr"] = self._first_rate * self._shape(self._step)
        self._step += 1
        self._optimizer.zero_grad()
        self._descend(minibatch.loss(), self._scaler)
        if self._average is not None and self._step == self._total_steps:
            self._average.add(0.0)  # the rate has decayed: these are the weights to keep

    def readings(self) -> dict[str, float]:
        """Return the rate of the last step."""
        return {"rate": self._optimizer.param_groups[0]["lr"]}

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs."""
        average = {} if self._average is None else self._average.state_dict()
        return {**super().state_dict(), "step": self._step, **average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        super().load_state_dict(state)
        self._step = state["step"]
        if self._average is not None:
            self._average.load_state_dict(state)
