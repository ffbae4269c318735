"""One minibatch: its loss and gradient at whatever weights the model has at the moment.

The four ways to tell an optimizer its minibatch (a closure, ``loss=`` with ``probe=``, recorded
calls, nothing at all) are four small classes: `first` makes sure that the gradient at the present
weights is in place, `again` computes both anew, `evaluate` the loss alone.
"""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from annealtune.optim.evaluation.grad_scaler import active_scaler, unscale
from annealtune.optim.evaluation.random_state import RandomState
from annealtune.optim.evaluation.recorder import Call
from annealtune.optim.parameters import gradients_of, parameters_of


class Minibatch(Protocol):
    """What can be computed of a minibatch."""

    returned: Any  # what the step returns: the loss as the caller knows it

    @property
    def start(self) -> RandomState:
        """The random state before its first forward."""

    def first(self) -> list[Tensor]:
        """Have the gradient at the present weights in place; return the losses it is made of."""

    def compared(self) -> Tensor:
        """Return the loss of `first` in the unit of `again` and `evaluate`."""

    def again(self) -> Tensor:
        """Compute loss and gradient at the present weights, with the same random numbers."""

    def evaluate(self) -> Any:
        """Compute the loss at the present weights, without gradients."""


class ClosureMinibatch:
    """A closure, which may call ``zero_grad`` and ``backward`` itself or leave that to us.

    Args:
        closure: computes the loss.
        told: is called when the closure has left ``backward`` to us.
    """

    def __init__(
        self,
        owner: str,
        closure: Callable[[], Any],
        base: Optimizer,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        if not callable(closure):
            raise not_callable(owner, "closure", closure)
        self._owner = owner
        self.evaluate = closure
        self._base = base
        self._told = told
        self.start = RandomState.capture()
        self.returned: Any = None

    def first(self) -> list[Tensor]:
        """Run the closure and make the gradient if it did not."""
        self.returned = self._run()
        return [self.returned]

    def compared(self) -> Tensor:
        """Return the loss."""
        loss: Tensor = self.returned
        return loss

    def again(self) -> Tensor:
        """Run it again, from the same random numbers."""
        self._base.zero_grad()
        self.start.restore()
        return self._run()

    def has_gradient(self) -> bool:
        """Tell whether there is a gradient of any weight."""
        return len(gradients_of(self._base)) > 0

    def differentiate(self, loss: Any) -> None:
        """Make the gradient of a loss whose closure did not."""
        if not (isinstance(loss, Tensor) and loss.requires_grad):
            raise ValueError(
                f"{self._owner}.step(closure): the closure must return a loss that depends on "
                f"parameters which require a gradient, or call backward itself, got {loss!r}"
            )
        if loss.numel() != 1:
            raise _no_scalar(self._owner, "closure", loss)
        self._base.zero_grad()
        with torch.enable_grad():
            loss.backward()
        self._told()

    def _run(self) -> Tensor:
        parameters = parameters_of(self._base)
        # The tensors themselves are held: the address of one that is gone may be used again.
        before = [(p.grad, None if p.grad is None else p.grad._version) for p in parameters]
        with torch.enable_grad():
            result = self.evaluate()
        loss = result[0] if isinstance(result, tuple) and result else result
        made = any(
            p.grad is not None and (p.grad is not gradient or p.grad._version != version)
            for p, (gradient, version) in zip(parameters, before, strict=True)
        )
        del before
        if not made:
            self.differentiate(loss)
        return as_loss(self._owner, "closure", loss)


class GivenMinibatch:
    """A loss whose gradient is in place, with a function that computes the loss again.

    Args:
        after: functions to call when a gradient was made here.
        around: makes the context in which that function is called.
    """

    def __init__(
        self,
        owner: str,
        loss: Any,
        probe: Callable[[], Any] | None,
        start: RandomState,
        base: Optimizer,
        after: Iterable[Callable[[], Any]] = (),
        around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        if probe is not None and not callable(probe):
            raise not_callable(owner, "probe", probe)
        self._owner = owner
        self._loss = as_loss(owner, "loss", loss)
        self._probe = probe
        self.start = start
        self._base = base
        self._after = after
        self._around = around
        self.returned: Any = loss

    def first(self) -> list[Tensor]:
        """Return the loss: its gradient is in place."""
        return [self._loss]

    def compared(self) -> Tensor:
        """Return the loss."""
        return self._loss

    def again(self) -> Tensor:
        """Compute the loss again and its gradient."""
        self._base.zero_grad()
        self.start.restore()
        with torch.enable_grad():
            loss = self.evaluate()
            if not (isinstance(loss, Tensor) and loss.requires_grad):
                raise ValueError(
                    f"{self._owner}.step(probe=...): in a race every arm needs its own gradient, "
                    "so the function must return a loss that depends on the parameters, got "
                    f"{loss!r}"
                )
            detached = as_loss(self._owner, "probe", loss)
            scaler = active_scaler()
            (loss if scaler is None else scaler.scale(loss)).backward()
        unscale(self._base, scaler)
        for function in self._after:
            function()
        return detached

    def evaluate(self) -> Any:
        """Compute the loss again."""
        assert self._probe is not None  # the intake has seen to it
        with self._around():
            return self._probe()


class RecordedMinibatch:
    """The recorded calls whose gradients are in place.

    Args:
        after: functions to call when a gradient was made here.
    """

    def __init__(
        self, calls: list[Call], base: Optimizer, after: Iterable[Callable[[], Any]] = ()
    ) -> None:
        self._calls = calls
        self._base = base
        self._after = after
        self._scaler = active_scaler()
        self.start = calls[0].start
        self.returned: Any = calls[0].loss if len(calls) == 1 else None

    def first(self) -> list[Tensor]:
        """Return the losses: their gradients are in place."""
        return [call.loss for call in self._calls]

    def compared(self) -> Tensor:
        """Return the sum of the losses, each times the factor that its caller applied."""
        return self._sum(self.first())

    def again(self) -> Tensor:
        """Make every call again, with its factor."""
        self._base.zero_grad()
        losses = []
        for call in self._calls:
            alike = call.exchanges.again() if call.exchanges else contextlib.nullcontext()
            with torch.enable_grad(), alike:
                loss = call.again()
                loss.backward(gradient=call.factor)
            losses.append(loss.detach())
        unscale(self._base, self._scaler)
        for function in self._after:
            function()
        return self._sum(losses)

    def evaluate(self) -> Tensor:
        """Make every call again, without gradients; return the sum."""
        return self._sum([call.again().detach() for call in self._calls])

    def _sum(self, losses: list[Tensor]) -> Tensor:
        scale = 1.0 if self._scaler is None else self._scaler.get_scale()
        parts = [
            loss.reshape(()) * (call.factor.reshape(()) / scale)
            for call, loss in zip(self._calls, losses, strict=True)
            if call.factor is not None
        ]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total


class UnknownMinibatch:
    """A gradient of which nothing else is known: enough for a plain step."""

    start = RandomState(torch.empty(0))  # nothing begins there: it is never computed again

    def __init__(self, losses: list[Tensor]) -> None:
        self._losses = losses
        self.returned: Any = losses[0] if len(losses) == 1 else None

    def first(self) -> list[Tensor]:
        """Return the losses that are known."""
        return self._losses

    def compared(self) -> Tensor:
        """Fail: a plain step compares nothing and repeats nothing."""
        raise AssertionError("a plain step compares nothing and repeats nothing")

    again = evaluate = compared


def not_callable(owner: str, argument: str, value: Any) -> TypeError:
    """Describe an argument of ``step`` that should be a function."""
    return TypeError(
        f"{owner}.step({argument}=...) must be callable, got {value!r}; it must be given a function"
    )


def scalar(owner: str, argument: str, value: Any) -> float:
    """Return a loss, or what is compared instead, as a float.

    Raises:
        TypeError: if it is neither a number nor a tensor of real numbers.
        ValueError: if it is a tensor of more or less than one element.
    """
    if isinstance(value, Tensor):
        try:
            value = value.item()
        except RuntimeError:
            if value.numel() == 1:
                raise
            raise _no_scalar(owner, argument, value) from None
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{owner}.step({argument}): {_what(argument)} a scalar, got {value!r}")
    return float(value)


def unread(owner: str, argument: str, value: Any) -> Tensor | float:
    """Return the same without waiting for the device of a tensor; its number is read later.

    Raises:
        TypeError, ValueError: as `scalar`.
    """
    if type(value) is Tensor and value.is_floating_point() and value.numel() == 1:
        return value.detach()
    return scalar(owner, argument, value)


def as_loss(owner: str, argument: str, value: Any) -> Tensor:
    """Return a loss as a tensor of one element, without waiting for its device.

    Raises:
        TypeError: if it is neither a number nor a tensor.
        ValueError: if it is a tensor of more or less than one element.
    """
    if not isinstance(value, Tensor):
        return torch.tensor(scalar(owner, argument, value), dtype=torch.float64)
    if value.numel() != 1:
        raise _no_scalar(owner, argument, value)
    return value.detach()


def _no_scalar(owner: str, argument: str, value: Tensor) -> ValueError:
    return ValueError(
        f"{owner}.step({argument}): {_what(argument)} a scalar, got a tensor of shape "
        f"{tuple(value.shape)}; reduce it, for example by .mean()"
    )


def _what(argument: str) -> str:
    return f"the {'value' if argument in ('objective', 'accept_on') else 'loss'} must be"
