"""How a method makes a step and what of it is evaluated in the end."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR

from .tasks import Part

Closure = Callable[[], Tensor]


@dataclass(frozen=True)
class Setup:
    """What a method is told before the first step.

    Attributes:
        model: what is trained, in training mode.
        steps: planned number of steps, within the budget.
        steps_per_epoch: minibatches in an epoch.
        batch_size: of a minibatch.
        seed: of the run.
        lr: learning rate, for methods that take one.
        has_batch_norm: whether the net has it.
        forwards_left: tells how many forwards of the budget are left.
    """

    model: nn.Module
    steps: int
    steps_per_epoch: int
    batch_size: int
    seed: int
    lr: float | None
    has_batch_norm: bool
    forwards_left: Callable[[], float]

    @property
    def epochs(self) -> int:
        """The epochs that the steps begin."""
        return math.ceil(self.steps / self.steps_per_epoch)


class Trainer:
    """Any optimizer: forward, backward, step; by default with a cosine schedule to zero."""

    def __init__(self, setup: Setup, optimizer: Optimizer, *, cosine: bool = True) -> None:
        self.model = setup.model
        self.optimizer = optimizer
        self.schedule = CosineAnnealingLR(optimizer, T_max=setup.steps) if cosine else None

    def step(self, closure: Closure) -> Tensor:
        """Make one step on one minibatch and return its loss."""
        self.optimizer.zero_grad()
        loss = closure()
        loss.backward()
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()
        return loss.detach()

    def end_epoch(self) -> None:
        """Do what is due after the last minibatch of an epoch."""

    def evaluated(self, loader: Iterable[Part]) -> AbstractContextManager[nn.Module]:
        """Return the net to evaluate, for the length of a ``with``; nothing is trained after it.

        The loader yields training minibatches; whoever draws one pays a forward for it.
        """
        return contextlib.nullcontext(self.model)


class ScheduleFree(Trainer):
    """An optimizer of the package schedulefree, which evaluates at other weights than it steps."""

    def __init__(self, setup: Setup, optimizer: Any) -> None:
        super().__init__(setup, optimizer, cosine=False)
        self.has_batch_norm = setup.has_batch_norm
        optimizer.train()

    @contextlib.contextmanager
    def evaluated(self, loader: Iterable[Part]) -> Iterator[nn.Module]:
        self.optimizer.eval()  # type: ignore[attr-defined]
        if self.has_batch_norm:
            recalibrate(self.model, loader)
        yield self.model


class PolynomialAveraging(Trainer):
    """DoG: a constant formula for the rate, and the average that its authors call crucial."""

    def __init__(self, setup: Setup, optimizer: Optimizer, averager: Any) -> None:
        super().__init__(setup, optimizer, cosine=False)
        self.averager = averager
        self.has_batch_norm = setup.has_batch_norm

    def step(self, closure: Closure) -> Tensor:
        loss = super().step(closure)
        self.averager.step()
        return loss

    @contextlib.contextmanager
    def evaluated(self, loader: Iterable[Part]) -> Iterator[nn.Module]:
        average = self.averager.averaged_model
        if self.has_batch_norm:
            recalibrate(average, loader)
        yield average


class OwnStep(Trainer):
    """A method that does forward and backward itself; ``scheduled`` is what a cosine is laid on."""

    def __init__(self, setup: Setup, stepper: Any, scheduled: Optimizer | None = None) -> None:
        self.model = setup.model
        self.stepper = stepper
        self.schedule = (
            None if scheduled is None else CosineAnnealingLR(scheduled, T_max=setup.steps)
        )

    def step(self, closure: Closure) -> Tensor:
        loss = self.stepper.step(closure)
        if self.schedule is not None:
            self.schedule.step()
        return loss


class Annealed(OwnStep):
    """A tuner of this library; some are told when an epoch ends.

    Args:
        setup: of the run.
        tuner: makes the steps.
        is_averaged: whether the average of the weights is evaluated, or the last ones.
    """

    def __init__(self, setup: Setup, tuner: Any, *, is_averaged: bool) -> None:
        super().__init__(setup, tuner)
        self.is_averaged = is_averaged

    def end_epoch(self) -> None:
        if hasattr(self.stepper, "cool"):
            self.stepper.cool()

    @contextlib.contextmanager
    def evaluated(self, loader: Iterable[Part]) -> Iterator[nn.Module]:
        if not self.is_averaged:
            yield self.model
            return
        with self.stepper.averaged(loader):
            yield self.model


@torch.no_grad()
def recalibrate(model: nn.Module, loader: Iterable[Part]) -> None:
    """Take BatchNorm's running statistics anew, as the plain mean over some minibatches."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [copy.copy(norm.momentum) for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    for inputs, _ in loader:
        model(inputs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
