"""The methods a run can use, behind one interface."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from annealtune.optim import SGDSA, Shrinking, StepInfo, StochasticSA
from annealtune.training.config import RunConfig
from annealtune.training.options import RandomRateOptions, SgdSaOptions, SsaOptions


class Objective(Protocol):
    """What a step may ask of a minibatch; each call is one forward."""

    def loss(self) -> Tensor:
        """Return the mean loss."""

    def error(self) -> Tensor:
        """Return one minus the accuracy."""


class Method(Protocol):
    """Makes steps, knows when an epoch ends, can be saved and loaded."""

    backwards_per_step: int

    def step(self, objective: Objective) -> StepInfo | None:
        """Make one step on one minibatch; return the move where the method has moves."""

    def end_epoch(self) -> None:
        """Note the end of an epoch."""

    def readings(self) -> dict[str, float]:
        """Return what the method can tell of itself: temperature, rate or radius."""

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""


def build(
    config: RunConfig, model: nn.Module, steps_per_epoch: int, scaler: GradScaler | None
) -> Method:
    """Build the method of a config for a model.

    Args:
        config: names the method and holds its options.
        model: whose parameters are trained.
        steps_per_epoch: minibatches in an epoch, for schedules that follow the steps.
        scaler: scales the loss of fp16 runs.
    """
    options: Any = config.options
    if isinstance(options, SsaOptions):
        return Annealed(_stochastic_sa(config, options, model), None, options.objective)
    if isinstance(options, SgdSaOptions | RandomRateOptions):
        return Annealed(_sgd_sa(config, options, model), scaler)
    if config.method == "scheduled-sgd":
        starts = [math.ceil(share * config.epochs - 1e-9) for share in options.milestones]

        def shape(step: int) -> float:
            epoch = step // steps_per_epoch
            return float(options.factor ** sum(epoch >= start for start in starts))

        return Gradient(torch.optim.SGD(model.parameters(), lr=options.lr), shape, scaler)
    if config.method == "sgd":
        return Gradient(torch.optim.SGD(model.parameters(), lr=options.lr), lambda _: 1.0, scaler)
    total = config.epochs * steps_per_epoch
    arguments = options.model_dump()
    optimizer = torch.optim.AdamW if config.method == "adamw" else torch.optim.SGD
    return Gradient(
        optimizer(model.parameters(), **arguments),
        lambda step: 0.5 * (1 + math.cos(math.pi * step / total)),
        scaler,
    )


class Gradient:
    """A torch optimizer whose rate follows a fixed shape.

    Args:
        optimizer: with its first rate.
        shape: factor of that rate at a step, from 0.
        scaler: scales the loss of fp16 runs.
    """

    backwards_per_step = 1

    def __init__(
        self, optimizer: Optimizer, shape: Callable[[int], float], scaler: GradScaler | None
    ) -> None:
        self._optimizer = optimizer
        self._first_rate = optimizer.param_groups[0]["lr"]
        self._shape = shape
        self._scaler = scaler
        self._step = 0

    def step(self, objective: Objective) -> None:
        """Make one plain step."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._first_rate * self._shape(self._step)
        self._step += 1
        self._optimizer.zero_grad()
        loss = objective.loss()
        if self._scaler is None:
            loss.backward()
            self._optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.step(self._optimizer)
            self._scaler.update()

    def end_epoch(self) -> None:
        """Do nothing: the shape follows the steps."""

    def readings(self) -> dict[str, float]:
        """Return the rate of the last step."""
        return {"lr": self._optimizer.param_groups[0]["lr"]}

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


class Annealed:
    """SGD-SA, SSA and the ablation.

    Args:
        optimizer: makes the moves.
        scaler: scales the loss of fp16 runs.
        objective: what a move is judged by, ``"loss"`` or ``"error"``.
    """

    def __init__(
        self,
        optimizer: SGDSA | StochasticSA,
        scaler: GradScaler | None,
        objective: str = "loss",
    ) -> None:
        self._optimizer = optimizer
        self._scaler = scaler
        self._objective = objective
        self._temperature = math.nan
        self.backwards_per_step = 0 if isinstance(optimizer, StochasticSA) else 1

    def step(self, objective: Objective) -> StepInfo | None:
        """Make one move; None if the scaler skipped it because a gradient overflowed."""
        before = self._optimizer.last_step
        if self._scaler is None:
            self._optimizer.step(getattr(objective, self._objective))
        else:
            self._optimizer.zero_grad()
            loss = objective.loss()
            self._scaler.scale(loss).backward()
            self._scaler.step(self._optimizer, loss=loss.detach(), probe=objective.loss)
            self._scaler.update()
        info = self._optimizer.last_step
        if info is before or info is None:
            return None
        self._temperature = info.temperature
        return info

    def end_epoch(self) -> None:
        """Cool."""
        self._optimizer.cool()

    def readings(self) -> dict[str, float]:
        """Return the temperature of the last move, and the radius of SSA."""
        readings = {"temperature": self._temperature}
        if isinstance(self._optimizer, StochasticSA):
            readings["radius"] = self._optimizer.radius
        return readings

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "temperature": self._temperature,
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._temperature = state["temperature"]
        if self._scaler is not None:
            self._scaler.load_state_dict(state["scaler"])


def _sgd_sa(
    config: RunConfig, options: SgdSaOptions | RandomRateOptions, model: nn.Module
) -> SGDSA:
    common: dict[str, Any] = {
        "neighborhood": options.neighborhood(),
        "epochs": config.epochs,
        "batch_size": config.batch_size,
        "seed": config.seeds["decision_seed"],
    }
    if isinstance(options, RandomRateOptions):
        return SGDSA(model, temperature=math.inf, **common)
    return SGDSA(model, preset=options.preset, temperature=options.schedule(), **common)


def _stochastic_sa(config: RunConfig, options: SsaOptions, model: nn.Module) -> StochasticSA:
    below = options.shrink_below
    if below is None:
        below = Shrinking().below if options.preset == "paper-code" else 0.0
    return StochasticSA(
        model,
        radius=Shrinking(options.radius, below=below, factor=options.shrink_factor),
        preset=options.preset,
        temperature=options.schedule(),
        epochs=config.epochs,
        batch_size=config.batch_size,
        scaling=options.scaling,
        seed=config.seeds["decision_seed"],
    )
