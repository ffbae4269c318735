"""The method that finds its rate by races."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from annealtune.annealing.race import RaceInfo
from annealtune.optim import SelfTuner
from annealtune.training.config.blocks import OptimizerName, SelfTunedOptions

from .method import CountedMinibatch, Method

_OPTIMIZERS: dict[OptimizerName, type[Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}


def build_self_tuned(
    options: SelfTunedOptions,
    model: nn.Module,
    total_steps: int,
    scaler: GradScaler | None,
) -> SelfTuned:
    """Build the method for a run of ``total_steps`` minibatches."""
    tuner = SelfTuner(
        _OPTIMIZERS[options.optimizer](model.parameters(), **options.arguments()),
        model=model,
        total_steps=total_steps,
        around=options.around,
        average=options.average,
    )
    return SelfTuned(tuner, scaler)


class SelfTuned(Method):
    """An optimizer that races at first and makes plain steps from then on."""

    recovers = True

    def __init__(self, optimizer: SelfTuner, scaler: GradScaler | None = None) -> None:
        super().__init__(optimizer, scaler, optimizer.averaged if optimizer.averages else None)
        self._compute_loss = optimizer.record(CountedMinibatch.loss, scaler=scaler)
        self._rate = 0.0

    def step(self, minibatch: CountedMinibatch) -> None:
        """Make one step; in a race every arm makes its own."""
        optimizer = self._optimizer
        planned = None if optimizer.is_racing else optimizer.lr
        optimizer.zero_grad()
        loss = self._compute_loss(minibatch)
        assert minibatch.first_loss is not None
        # A scaler would skip the step, and nobody would see that an arm, or the run, is broken.
        is_whole = math.isfinite(minibatch.first_loss)
        self._descend(loss, self._scaler if is_whole else None)
        self._rate = optimizer.lr if planned is None else planned

    def readings(self) -> dict[str, float]:
        """Return the rate of the last step, in a race that of its leader, and what races cost."""
        return {"rate": self._rate, "extra_steps": self._optimizer.extra_steps}

    @property
    def races(self) -> tuple[RaceInfo, ...]:
        """The races that are over."""
        races: tuple[RaceInfo, ...] = self._optimizer.races
        return races

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs."""
        return {**super().state_dict(), "rate": self._rate}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        super().load_state_dict(state)
        self._rate = state["rate"]
