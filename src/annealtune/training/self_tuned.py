"""The method that finds its rate by races."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from annealtune.annealing.race_info import RaceInfo
from annealtune.optim import SelfTuner
from annealtune.training.config import RunConfig
from annealtune.training.minibatch import Minibatch
from annealtune.training.self_tuned_options import OptimizerName, SelfTunedOptions
from annealtune.training.tuners import parameter_groups

_OPTIMIZERS: dict[OptimizerName, type[Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}


def build_self_tuner(
    config: RunConfig, options: SelfTunedOptions, model: nn.Module, total_steps: int
) -> SelfTuner:
    """Build the optimizer of self-tuned.

    Args:
        config: has the seed that draws the winners.
        options: the block of the method.
        model: whose parameters are trained.
        total_steps: minibatches of the whole run.

    Raises:
        ConfigError: if a scale names no part of the model.
    """
    scales = options.scales or {}
    # Only the ratios between these rates count: the races find the rate itself.
    groups: list[Any] = [
        {**group, "lr": scales.get(group.get("name", ""), 1.0)}
        for group in parameter_groups(config.method, scales, model)
    ]
    return SelfTuner(
        _OPTIMIZERS[options.optimizer](groups, **options.arguments()),
        model=model,
        total_steps=total_steps,
        around=options.around,
        average=options.average,
        seed=config.seeds["decision_seed"],
    )


class SelfTuned:
    """An optimizer that races at first and makes plain steps from then on.

    Args:
        optimizer: makes the steps.
        scaler: scales the loss of fp16 runs.
    """

    recovers = True

    def __init__(self, optimizer: SelfTuner, scaler: GradScaler | None = None) -> None:
        self._optimizer = optimizer
        self._compute_loss = optimizer.record(Minibatch.loss)
        self._scaler = scaler
        self._rate = 0.0

    def prepare(self) -> None:
        """Settle nothing before the minibatch is made."""

    def step(self, minibatch: Minibatch) -> None:
        """Make one step; in a race every arm makes its own."""
        optimizer = self._optimizer
        planned = None if optimizer.is_racing else optimizer.rate
        optimizer.zero_grad()
        loss = self._compute_loss(minibatch)
        assert minibatch.first_loss is not None
        if self._scaler is None or not math.isfinite(minibatch.first_loss):
            # A scaler would skip the step, and nobody would see that an arm, or the run, is broken.
            loss.backward()
            optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.step(optimizer)
            self._scaler.update()
        self._rate = optimizer.rate if planned is None else planned

    def end_epoch(self) -> None:
        """Do nothing: races and rate follow the steps."""

    def judged(self, batches: Iterable[Any]) -> AbstractContextManager[None]:
        """Give the model the average of its weights, if one is kept."""
        if self._optimizer.averages:
            return self._optimizer.averaged(batches)
        return contextlib.nullcontext()

    def readings(self) -> dict[str, float]:
        """Return the rate of the last step, in a race that of its leader, and what races cost."""
        return {"rate": self._rate, "extra_steps": self._optimizer.extra_steps}

    @property
    def races(self) -> tuple[RaceInfo, ...]:
        """The races that are over."""
        return self._optimizer.races

    def state_dict(self) -> dict[str, Any]:
        """Return the states of optimizer and scaler."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "rate": self._rate,
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._rate = state["rate"]
        if self._scaler is not None:
            self._scaler.load_state_dict(state["scaler"])
