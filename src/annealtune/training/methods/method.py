"""What all methods have in common."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor
from torch.amp import GradScaler

from annealtune.annealing.race import RaceInfo
from annealtune.optim import StepInfo

from .counted_minibatch import CountedMinibatch


class Method(ABC):
    """Makes steps, knows when an epoch ends, can be saved and loaded.

    Args:
        optimizer: makes the steps.
        scaler: scales the loss of fp16 runs.

    Attributes:
        recovers: whether it brings a run back whose loss is not finite.
        averages: whether it is judged by an average of its weights instead of its last ones.
    """

    recovers = False
    averages = False

    def __init__(self, optimizer: Any, scaler: GradScaler | None = None) -> None:
        self._optimizer = optimizer
        self._scaler = scaler

    @property
    def races(self) -> tuple[RaceInfo, ...]:
        """The races that are over, where the method has any."""
        return ()

    def prepare(self) -> None:  # noqa: B027 - most methods have nothing to settle
        """Settle what the next minibatch depends on; called before it is made."""

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
        return contextlib.nullcontext()

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
