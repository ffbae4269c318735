"""Loss and gradient of one minibatch, at whatever weights the model has at the moment.

The four ways to tell an optimizer its minibatch (a closure, ``loss=`` with ``probe=``, recorded
calls, nothing at all) are four small classes with the same two methods: `first` makes sure that
the gradient at the present weights is in place, `again` computes both anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from annealtune.optim.random_state import RandomState
from annealtune.optim.recorder import Call


class MinibatchGradient(Protocol):
    """The gradient of one minibatch."""

    returned: Any  # what the step returns: the loss as the caller knows it

    def first(self) -> list[Tensor]:
        """Have the gradient at the present weights in place; return the losses it is made of."""

    def again(self) -> Tensor:
        """Compute loss and gradient at the present weights, with the same random numbers."""

    def compared(self) -> Tensor:
        """Return the loss of `first` in the unit of `again`."""


class ClosureGradient:
    """A closure, which may call ``zero_grad`` and ``backward`` itself or leave that to us.

    Args:
        owner: name of the optimizer's class, for messages.
        closure: computes the loss.
        base: whose gradients are meant.
    """

    def __init__(self, owner: str, closure: Callable[[], Any], base: Optimizer) -> None:
        if not callable(closure):
            raise TypeError(f"{owner}.step(closure) must be given a function, got {closure!r}")
        self._owner = owner
        self._closure = closure
        self._base = base
        self._start = RandomState.capture()
        self.made_by_us = False  # whether the closure left backward to us
        self.returned: Any = None

    def first(self) -> list[Tensor]:
        """Run the closure and make the gradient if it did not."""
        self._loss = self._evaluate()
        self.returned = self._loss
        return [self._loss]

    def compared(self) -> Tensor:
        """Return the loss."""
        return self._loss

    def again(self) -> Tensor:
        """Run it again, from the same random numbers."""
        self._base.zero_grad()
        self._start.restore()
        return self._evaluate()

    def _evaluate(self) -> Tensor:
        parameters = list(_parameters(self._base))
        # The tensors themselves are held: the address of one that is gone may be used again.
        before = [(p.grad, None if p.grad is None else p.grad._version) for p in parameters]
        with torch.enable_grad():
            result = self._closure()
            loss = result[0] if isinstance(result, tuple) and result else result
            made = any(
                p.grad is not None and (p.grad is not gradient or p.grad._version != version)
                for p, (gradient, version) in zip(parameters, before, strict=True)
            )
            del before
            if not made:
                if not (isinstance(loss, Tensor) and loss.requires_grad):
                    raise ValueError(
                        f"{self._owner}.step(closure): the closure must return a loss that depends "
                        "on parameters which require a gradient, or call backward itself, got "
                        f"{result!r}"
                    )
                self.made_by_us = True
                self._base.zero_grad()
                _one(self._owner, "closure", loss, detach=False).backward()
        return _one(self._owner, "closure", loss)


class GivenGradient:
    """A loss whose gradient is in place, with a function that computes the loss again.

    Args:
        owner: name of the optimizer's class, for messages.
        loss: the loss.
        probe: computes it again; None outside a race.
        start: random state before the forward.
        base: whose gradients are meant.
    """

    def __init__(
        self,
        owner: str,
        loss: Any,
        probe: Callable[[], Any] | None,
        start: RandomState,
        base: Optimizer,
    ) -> None:
        if probe is not None and not callable(probe):
            raise TypeError(f"{owner}.step(probe=...) must be callable, got {probe!r}")
        self._owner = owner
        self._loss = _one(owner, "loss", loss)
        self._probe = probe
        self._start = start
        self._base = base
        self.returned: Any = loss

    def first(self) -> list[Tensor]:
        """Return the loss: its gradient is in place."""
        return [self._loss]

    def compared(self) -> Tensor:
        """Return the loss."""
        return self._loss

    def again(self) -> Tensor:
        """Compute the loss again and its gradient."""
        assert self._probe is not None  # the intake has seen to it
        self._base.zero_grad()
        self._start.restore()
        with torch.enable_grad():
            loss = self._probe()
        if not (isinstance(loss, Tensor) and loss.requires_grad):
            raise ValueError(
                f"{self._owner}.step(probe=...): in a race every arm needs its own gradient, so "
                f"the function must return a loss that depends on the parameters, got {loss!r}"
            )
        scaler = active_scaler()
        loss = _one(self._owner, "probe", loss, detach=False)
        with torch.enable_grad():
            (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is not None:
            _unscale(self._base, scaler.get_scale())
        return loss.detach()


class RecordedGradient:
    """The recorded calls whose gradients are in place.

    Args:
        calls: at least one, in the order in which they were made.
        base: whose gradients are meant.
    """

    def __init__(self, calls: list[Call], base: Optimizer) -> None:
        self._calls = calls
        self._base = base
        self.returned: Any = calls[0].loss if len(calls) == 1 else None

    def first(self) -> list[Tensor]:
        """Return the losses: their gradients are in place."""
        return [call.loss for call in self._calls]

    def compared(self) -> Tensor:
        """Return the sum of the losses, each times the factor that its caller applied."""
        return self._sum([call.loss for call in self._calls])

    def again(self) -> Tensor:
        """Make every call again, with its factor."""
        self._base.zero_grad()
        losses = []
        for call in self._calls:
            with torch.enable_grad():
                loss = call.again()
                loss.backward(gradient=call.factor)
            losses.append(loss.detach())
        scaler = active_scaler()
        if scaler is not None:
            _unscale(self._base, scaler.get_scale())
        return self._sum(losses)

    def _sum(self, losses: list[Tensor]) -> Tensor:
        scaler = active_scaler()
        scale = 1.0 if scaler is None else scaler.get_scale()
        parts = [
            loss.reshape(()) * (call.factor.reshape(()) / scale)
            for call, loss in zip(self._calls, losses, strict=True)
            if call.factor is not None
        ]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def evaluate(self) -> Tensor:
        """Make every call again at the present weights, without gradients; return the sum."""
        return self._sum([call.again().detach() for call in self._calls])

    @property
    def start(self) -> RandomState:
        """The random state before the first call."""
        return self._calls[0].start


class UnknownGradient:
    """A gradient of which nothing else is known: enough for a plain step.

    Args:
        losses: of recorded calls, if there were any.
    """

    def __init__(self, losses: list[Tensor]) -> None:
        self._losses = losses
        self.returned: Any = losses[0] if len(losses) == 1 else None

    def first(self) -> list[Tensor]:
        """Return the losses that are known."""
        return self._losses

    def compared(self) -> Tensor:
        """Fail: there is nothing to compare."""
        raise AssertionError("a plain step compares nothing")

    def again(self) -> Tensor:
        """Fail: it is not known how."""
        raise AssertionError("a plain step repeats nothing")


def gradients_are_finite(base: Optimizer) -> bool:
    """Tell whether no gradient is NaN or infinite: one that overflowed makes no step."""
    gradients = (p.grad for p in _parameters(base) if p.grad is not None)
    dense = (gradient._values() if gradient.is_sparse else gradient for gradient in gradients)
    return all(bool(gradient.isfinite().all()) for gradient in dense)


def active_scaler() -> Any:
    """Return the GradScaler that is calling us, or None.

    It unscales the gradients that it knows, then calls ``step`` and hands nothing over: whoever
    makes further gradients has to find its scale.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "torch.amp.grad_scaler":
            scaler = frame.f_locals["self"]
            return scaler if scaler.is_enabled() else None
    return None


def _unscale(base: Optimizer, scale: float) -> None:
    gradients = [p.grad for p in _parameters(base) if p.grad is not None]
    if gradients and scale != 1.0:
        torch._foreach_mul_(gradients, 1.0 / scale)


def _parameters(base: Optimizer) -> Iterable[Tensor]:
    return (p for group in base.param_groups for p in group["params"])


def _one(owner: str, argument: str, loss: Any, *, detach: bool = True) -> Tensor:
    """Return a loss as a tensor of one element.

    Raises:
        TypeError: if it is neither a number nor a tensor.
        ValueError: if it has more or less than one element.
    """
    if isinstance(loss, int | float) and not isinstance(loss, bool):
        return torch.tensor(float(loss), dtype=torch.float64)
    if not isinstance(loss, Tensor):
        raise TypeError(f"{owner}.step({argument}): the loss must be a scalar, got {loss!r}")
    if loss.numel() != 1:
        raise ValueError(
            f"{owner}.step({argument}): the loss must be a scalar, got a tensor of shape "
            f"{tuple(loss.shape)}; reduce it, for example by .mean()"
        )
    return loss.detach() if detach else loss
