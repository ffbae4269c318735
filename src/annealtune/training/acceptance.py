"""What moves are judged by: the loss, the error or a function of the user's, and on what images."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annealtune.errors import ConfigError
from annealtune.optim.objectives import error
from annealtune.training.annealed_options import AcceptanceOptions
from annealtune.training.data import batches as data
from annealtune.training.lookup import describe, import_factory, is_factory
from annealtune.training.minibatch import Minibatch

Objective = Callable[[], float]


class Acceptance:
    """The accept test of a run.

    Args:
        method: name of the block, for messages.
        options: name what is compared.
        model: what a function of the user's is given.

    Raises:
        ConfigError: if such a function cannot be imported.
    """

    def __init__(self, method: str, options: AcceptanceOptions, model: nn.Module) -> None:
        self.on = options.accept_on
        self.batch = options.accept_batch
        self._key = f"{method}.accept_on"
        self._model = model
        self._function: Callable[..., Any] | None = None
        if is_factory(self.on):
            self._function = import_factory(self._key, self.on)

    @property
    def is_function(self) -> bool:
        """Whether moves are judged by a function of the user's."""
        return self._function is not None

    def value(self, loss: Tensor, scores: Tensor, labels: Tensor) -> float:
        """Return what is compared, from a forward.

        A loss that is not finite comes first: an error would hide it.
        """
        value = loss.item()
        if self.on == "error" and math.isfinite(value):
            return error(scores, labels).item()
        return value

    def objective(self, minibatch: Minibatch) -> Objective:
        """Return a function that evaluates what is compared, for the present weights.

        Its first call is at the point that a step starts from.
        """
        images = minibatch.held_out if self.batch == "held-out" else minibatch.images
        assert images is not None
        if self._function is not None:
            what = f"{self._key} = {self.on!r}"
            return _UsersObjective(what, self._function, self._model, images, minibatch)
        return lambda: self.value(*minibatch.judged(images))


class _UsersObjective:
    """A function of (model, minibatch), checked at every call."""

    def __init__(
        self,
        what: str,
        function: Callable[..., Any],
        model: nn.Module,
        images: data.Minibatch,
        counter: Minibatch,
    ) -> None:
        self._what = what
        self._function = function
        self._model = model
        self._images = images
        self._counter = counter
        self._is_first = True

    def __call__(self) -> float:
        """Return a number; before the move it must be finite.

        Raises:
            ConfigError: if the function fails or returns something else.
        """
        try:
            with self._counter.counting(self._model), self._counter.autocast():
                value = self._function(self._model, self._images)
        except Exception as failure:  # the function is the user's: whatever it raises, say where
            raise ConfigError(
                f"{self._what}: calling it with (model, minibatch) failed: {describe(failure)}"
            ) from failure
        number = self._number(value)
        if self._is_first and not math.isfinite(number):
            raise ConfigError(
                f"{self._what}: must return a finite number at the current weights, got {number}"
            )
        self._is_first = False
        return number

    def _number(self, value: Any) -> float:
        shown = repr(value)
        if isinstance(value, Tensor):
            shown = f"a tensor of shape {tuple(value.shape)} and {value.dtype}"
            if value.numel() == 1 and value.dtype not in (torch.bool, *_COMPLEX):
                return float(value.item())
        elif isinstance(value, numbers.Real) and not isinstance(value, bool):
            return float(value)
        raise ConfigError(
            f"{self._what}: must return a number or a tensor of one number, got "
            f"{shown if len(shown) <= 80 else shown[:60] + ' ...'}"
        )


_COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
