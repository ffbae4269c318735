"""What moves are judged by: the loss, the error or the user's own function, on which samples."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annealtune.errors import ConfigError
from annealtune.optim.evaluation.objectives import error
from annealtune.training.factories import import_factory, in_one_line, is_factory

from .counted_minibatch import CountedMinibatch

Objective = Callable[[], float]


class Criterion:
    """The accept test of a run.

    Args:
        method: name of the block, for messages.
        on: what is compared: ``"loss"``, ``"error"`` or the name of the user's function.
        batch: on which samples: ``"same"``, ``"next"`` or ``"held-out"``.
        model: what the user's function is given.

    Raises:
        ConfigError: if such a function cannot be imported.
    """

    def __init__(self, method: str, on: str, batch: str, model: nn.Module) -> None:
        self.on = on
        self.batch = batch
        self._key = f"{method}.accept_on"
        self._model = model
        self._function: Callable[..., Any] | None = None
        if is_factory(self.on):
            self._function = import_factory(self._key, self.on)

    @property
    def is_function(self) -> bool:
        """Whether moves are judged by the user's own function."""
        return self._function is not None

    def value(self, loss: Tensor, outputs: Tensor, targets: Tensor) -> float:
        """Return what is compared, from a forward.

        A loss that is not finite comes first: an error would hide it.
        """
        value = loss.item()
        if self.on == "error" and math.isfinite(value):
            return error(outputs, targets).item()
        return value

    def objective(self, minibatch: CountedMinibatch) -> Objective:
        """Return a function that evaluates what is compared, for the present weights.

        Its first call is at the point that a step starts from. The user's function is checked at
        every call: a failure, or a result that is not a number, is a `ConfigError`.
        """
        samples = minibatch.held_out if self.batch == "held-out" else minibatch.samples
        assert samples is not None
        if self._function is None:
            return lambda: self.value(*minibatch.judged(samples))
        function, what, is_first = self._function, f"{self._key} = {self.on!r}", True

        def objective() -> float:
            nonlocal is_first
            try:
                with minibatch.counting(self._model), minibatch.autocast():
                    value = function(self._model, samples)
            except (
                Exception
            ) as failure:  # the function is the user's: whatever it raises, say where
                raise ConfigError(
                    f"{what}: calling it with (model, minibatch) failed: {in_one_line(failure)}"
                ) from failure
            number = _number(what, value)
            if is_first and not math.isfinite(number):
                raise ConfigError(
                    f"{what}: must return a finite number at the current weights, got {number}"
                )
            is_first = False
            return number

        return objective


def _number(what: str, value: Any) -> float:
    """Return what the user's function gave as a number."""
    shown = repr(value)
    if isinstance(value, Tensor):
        shown = f"a tensor of shape {tuple(value.shape)} and {value.dtype}"
        if value.numel() == 1 and value.dtype != torch.bool and not value.is_complex():
            return float(value.item())
    elif not isinstance(value, bool) and isinstance(value, numbers.Real):
        return float(value)
    raise ConfigError(
        f"{what}: must return a number or a tensor of one number, got "
        f"{shown if len(shown) <= 80 else shown[:60] + ' ...'}"
    )
