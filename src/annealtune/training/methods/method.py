"""What all methods have in common, and the minibatch that they are given."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor
from torch.amp import GradScaler

from annealtune.annealing.race import RaceInfo
from annealtune.optim import StepInfo
from annealtune.optim.embedded import error
from annealtune.training.data.batches import Samples
from annealtune.training.task import Task


class CountedMinibatch:
    """A minibatch of one training step, with its forwards.

    Args:
        network: gives what the task asks for.
        task: computes the loss.
        samples: to train on.
        autocast: makes the precision of a forward.
        weight: what the mean loss of these samples counts in the mean over all processes.
        mean: over all processes, of the first loss.
    """

    def __init__(
        self,
        network: Callable[[Tensor], Tensor],
        task: Task,
        samples: Samples,
        autocast: Callable[[], AbstractContextManager[object]],
        weight: float = 1.0,
        mean: Callable[[float], float] = float,
    ) -> None:
        self.samples = samples
        self.autocast = autocast
        self.first_loss: float | None = None
        self.forwards = 0
        self.backwards = 0
        self._network = network
        self._task = task
        self._weight = weight
        self._mean = mean

    def loss(self) -> Tensor:
        """Return the training loss."""
        return self.parts()[0]

    def error(self) -> Tensor:
        """Return one minus the accuracy."""
        _, outputs, targets = self.parts()
        return error(outputs, targets) * self._weight

    def finite_error(self) -> float:
        """Return the same as a number, or the loss if that is not finite: an error hides it."""
        loss, outputs, targets = self.forward()
        value = loss.item()
        return error(outputs, targets).item() if math.isfinite(value) else value

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the training loss with the outputs and targets that it is made of."""
        loss, outputs, targets = self.forward()
        if self.first_loss is None:
            self.first_loss = self._mean(loss.item())
        return loss, outputs, targets

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss, outputs and targets."""
        self.forwards += 1
        with self.autocast():
            outputs = self._task.arranged(self._network(self.samples.inputs))
            loss = self._task.loss(outputs, self.samples.targets)
            if self._weight != 1:
                loss = loss * self._weight
        if loss.requires_grad:
            loss.register_hook(self._count_backward)
        return loss, outputs, self.samples.targets

    def _count_backward(self, _: Tensor) -> None:
        self.backwards += 1


class Method(ABC):
    """Makes steps, knows when an epoch ends, can be saved and loaded.

    Args:
        optimizer: makes the steps.
        scaler: scales the loss of fp16 runs.
        averaged: gives the model an average of its weights, by which the method is then judged,
            while the context lasts; it is given minibatches for what must be computed anew.

    Attributes:
        recovers: whether it brings a run back whose loss is not finite.
        averages: whether it is judged by an average of its weights instead of its last ones.
    """

    recovers = False

    def __init__(
        self,
        optimizer: Any,
        scaler: GradScaler | None = None,
        averaged: Callable[[Iterable[Any]], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._optimizer = optimizer
        self._scaler = scaler
        self._averaged = averaged
        self.averages = averaged is not None

    @property
    def races(self) -> tuple[RaceInfo, ...]:
        """The races that are over, where the method has any."""
        return ()

    @abstractmethod
    def step(self, minibatch: CountedMinibatch) -> StepInfo | None:
        """Make one step on one minibatch; return the move where the method has moves."""

    def end_epoch(self) -> None:  # noqa: B027 - most methods follow the steps alone
        """Note the end of an epoch."""

    def judged(self, batches: Iterable[Any]) -> AbstractContextManager[None]:
        """Give the model the weights by which the method is judged, if not its last.

        Args:
            batches: from the training set, for what must be computed anew for such weights.
        """
        return contextlib.nullcontext() if self._averaged is None else self._averaged(batches)

    @abstractmethod
    def readings(self) -> dict[str, float]:
        """Return the numbers that the method can tell of itself, such as temperature or rate."""

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._optimizer.load_state_dict(state["optimizer"])
        if self._scaler is not None:
            self._scaler.load_state_dict(state["scaler"])

    def _descend(self, loss: Tensor, scaler: GradScaler | None) -> None:
        """Make one plain step along the gradient of a loss."""
        if scaler is None:
            loss.backward()
            self._optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(self._optimizer)
            scaler.update()
