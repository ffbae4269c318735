"""The methods a run can use, behind one interface."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from annealtune.annealing.race_info import RaceInfo
from annealtune.optim import StepInfo
from annealtune.training.acceptance import Acceptance
from annealtune.training.annealed import GradientFree, Tuned
from annealtune.training.annealed_options import AcceptanceOptions, SsaOptions, TunedOptions
from annealtune.training.config import RunConfig
from annealtune.training.loop import Loop
from annealtune.training.minibatch import Minibatch
from annealtune.training.neighborhood_options import RandomRateOptions
from annealtune.training.next_minibatch import NextMinibatch
from annealtune.training.self_tuned import SelfTuned, build_self_tuner
from annealtune.training.self_tuned_options import SelfTunedOptions
from annealtune.training.tuners import build_stochastic_sa, build_tuner


class Method(Protocol):
    """Makes steps, knows when an epoch ends, can be saved and loaded.

    Attributes:
        recovers: whether it brings a run back whose loss is not finite.
    """

    recovers: bool

    @property
    def races(self) -> tuple[RaceInfo, ...]:
        """The races that are over, where the method has any."""

    def prepare(self) -> None:
        """Settle what the next minibatch depends on; called before it is made."""

    def step(self, minibatch: Minibatch) -> StepInfo | None:
        """Make one step on one minibatch; return the move where the method has moves."""

    def end_epoch(self) -> None:
        """Note the end of an epoch."""

    def judged(self, batches: Iterable[Any]) -> AbstractContextManager[None]:
        """Give the model the weights by which the method is judged, if others than its last.

        Args:
            batches: from the training set, for what must be computed anew for such weights.
        """

    def readings(self) -> dict[str, float]:
        """Return the numbers that the method can tell of itself, such as temperature or rate."""

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""


def build(
    config: RunConfig,
    model: nn.Module,
    steps_per_epoch: int,
    scaler: GradScaler | None,
    loop: Loop | None = None,
) -> Method:
    """Build the method of a config for a model.

    Args:
        config: names the method and holds its options.
        model: whose parameters are trained.
        steps_per_epoch: minibatches in an epoch, for schedules that follow the steps.
        scaler: scales the loss of fp16 runs.
        loop: what H may set besides the options of the optimizer.

    Raises:
        ConfigError: if options and model do not fit together.
    """
    options: Any = config.options
    total = config.epochs * steps_per_epoch
    if isinstance(options, SelfTunedOptions):
        return SelfTuned(build_self_tuner(config, options, model, total), scaler)
    if isinstance(options, SsaOptions):
        return GradientFree(build_stochastic_sa(config, options, model), options.objective)
    if isinstance(options, TunedOptions | RandomRateOptions):
        return _tuned(config, model, scaler, loop or Loop())
    if config.method == "scheduled-sgd":
        starts = [math.ceil(share * config.epochs - 1e-9) for share in options.milestones]

        def shape(step: int) -> float:
            epoch = step // steps_per_epoch
            return float(options.factor ** sum(epoch >= start for start in starts))

        return Gradient(torch.optim.SGD(model.parameters(), lr=options.lr), shape, scaler)
    if config.method == "sgd":
        return Gradient(torch.optim.SGD(model.parameters(), lr=options.lr), lambda _: 1.0, scaler)
    arguments = options.model_dump()
    optimizer = torch.optim.AdamW if config.method == "adamw" else torch.optim.SGD
    return Gradient(
        optimizer(model.parameters(), **arguments),
        lambda step: 0.5 * (1 + math.cos(math.pi * step / total)),
        scaler,
    )


def _tuned(config: RunConfig, model: nn.Module, scaler: GradScaler | None, loop: Loop) -> Tuned:
    options: Any = config.options
    judged_by = options if isinstance(options, AcceptanceOptions) else AcceptanceOptions()
    acceptance = Acceptance(config.method, judged_by, model)
    reads_outputs = acceptance.batch == "same" and scaler is None
    tuner = build_tuner(config, model, loop, reads_outputs=reads_outputs)
    has_loop_options = bool(options.loop_options())
    if acceptance.batch == "next":
        return NextMinibatch(
            tuner, acceptance, loop, has_loop_options=has_loop_options, model=model
        )
    return Tuned(tuner, acceptance, loop, has_loop_options=has_loop_options, scaler=scaler)


class Gradient:
    """A torch optimizer whose rate follows a fixed shape.

    Args:
        optimizer: with its first rate.
        shape: factor of that rate at a step, from 0.
        scaler: scales the loss of fp16 runs.
    """

    recovers = False
    races = ()

    def __init__(
        self, optimizer: Optimizer, shape: Callable[[int], float], scaler: GradScaler | None
    ) -> None:
        self._optimizer = optimizer
        self._first_rate = optimizer.param_groups[0]["lr"]
        self._shape = shape
        self._scaler = scaler
        self._step = 0

    def prepare(self) -> None:
        """Settle nothing before the minibatch is made."""

    def step(self, minibatch: Minibatch) -> None:
        """Make one plain step."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._first_rate * self._shape(self._step)
        self._step += 1
        self._optimizer.zero_grad()
        loss = minibatch.loss()
        if self._scaler is None:
            loss.backward()
            self._optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.step(self._optimizer)
            self._scaler.update()

    def end_epoch(self) -> None:
        """Do nothing: the shape follows the steps."""

    def judged(self, batches: Iterable[Any]) -> AbstractContextManager[None]:
        """Leave the last weights."""
        return contextlib.nullcontext()

    def readings(self) -> dict[str, float]:
        """Return the rate of the last step."""
        return {"rate": self._optimizer.param_groups[0]["lr"]}

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state and the step count."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "step": self._step,
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._step = state["step"]
        if self._scaler is not None:
            self._scaler.load_state_dict(state["scaler"])
