"""One minibatch as a step sees it: the loss with its gradient once, then evaluations of it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annealtune.errors import NonFiniteLossError
from annealtune.optim.objectives import Judge
from annealtune.optim.probe import Graph, Probe
from annealtune.optim.random_state import RandomState


class Minibatch:
    """The functions of one minibatch.

    Args:
        owner: name of the optimizer's class, for messages.
        guard: runs evaluations that change nothing.
        closure: computes the loss, with or without ``zero_grad`` and ``backward``.
        loss: the loss with its gradient in place, where there is no closure.
        probe: computes the loss again, where there is no closure.
        objective: what the accept test compares instead of the loss.
        judge: what it compares instead, a function of the outputs and targets that the closure
            returns beside the loss.
        start: random state from which an evaluation repeats the first forward.

    Raises:
        TypeError: if these are not one of the ways to make a step.
    """

    def __init__(
        self,
        owner: str,
        guard: Probe,
        *,
        closure: Callable[[], Any] | None,
        loss: Any,
        probe: Callable[[], Any] | None,
        objective: Callable[[], Any] | None,
        judge: Judge | None,
        start: RandomState,
    ) -> None:
        _check(owner, closure, loss, probe, objective, judge)
        self._owner = owner
        self._guard = guard
        self._closure = closure
        self._loss = loss
        self._judge = judge
        self._first_value: float | None = None  # of the judge, at the current point
        self._evaluate = objective or probe or closure
        # A closure is written for training and may enable gradients out of habit; a function that
        # was written for the accept test enables them only if it needs them.
        self._graph: Graph = "never" if self._evaluate is closure else "if-enabled"
        self._inputs: list[Tensor] = []  # with gradients of their own, as in adversarial training
        self._evaluates_loss = objective is None
        # Otherwise the value at the current point is not known yet.
        self._compares_losses = self._evaluates_loss and guard.mode == "train"
        self.start = start

    def backpropagate(self, zero_grad: Callable[[], None]) -> Any:
        """Return the loss with its gradient in place, whatever of that the closure does itself."""
        if self._closure is None:
            return self._loss
        with self._guard.first_forward() as watch:
            loss, *judged = self._parts(self._closure())
        value = scalar(self._owner, "closure", loss)
        # One for the sake of the inputs does not count, once its gradients are reset.
        if not (watch.called_backward and self._guard.has_gradients()):
            if not (isinstance(loss, Tensor) and loss.requires_grad):
                raise ValueError(
                    f"{self._owner}.step(closure): the closure must return a loss that depends on "
                    f"parameters which require a gradient, or call backward itself, got {loss!r}"
                )
            zero_grad()
            with torch.enable_grad():
                loss.backward()
            self._guard.note_own_gradients()
        if judged and self._compares_losses and math.isfinite(value):
            end = RandomState.capture()
            self._first_value = self._judged(*judged)
            end.restore()
        if self._evaluate is self._closure:
            self._inputs = self._guard.inputs_among(watch.read.values()) if watch.read else []
            if self._inputs:
                self._graph = "and-backward"
            elif watch.calls_grad:
                self._graph = "always"
        self._loss = loss.detach() if isinstance(loss, Tensor) else loss
        return self._loss

    def before(self) -> float:
        """Return what the accept test compares with, at the current point.

        A loss that is not finite comes first: its gradient leads nowhere, however well an
        objective such as the accuracy may hide that.

        Raises:
            NonFiniteLossError: if the loss is finite and what is compared instead is not.
        """
        loss = scalar(self._owner, "loss", self._loss)
        if not math.isfinite(loss):
            return loss
        if not self._compares_losses:
            value = self.after()
        else:
            value = loss if self._first_value is None else self._first_value
        compared = "accept_on" if self._evaluates_loss else "objective"
        if not math.isfinite(value) and (self._judge is not None or not self._evaluates_loss):
            raise NonFiniteLossError(
                f"{self._owner}.step({compared}): the value at the current weights must be finite, "
                f"got {value!r} where the loss is {loss:.6g}; the weights are unchanged"
            )
        return value

    def after(self) -> float:
        """Return what the accept test measures at the point where the weights are now.

        Broken weights show in a loss; an objective such as the accuracy would not tell.
        """
        assert self._evaluate is not None
        tries_weights = not self._evaluates_loss
        with self._guard.replay(
            self.start, graph=self._graph, weights=tries_weights, inputs=self._inputs
        ):
            value = self._read(self._evaluate())
        return value if self._evaluates_loss or self._guard.weights_are_finite() else math.nan

    def _read(self, result: Any) -> float:
        """Return what the accept test compares, from what was evaluated."""
        if not self._evaluates_loss:
            return scalar(self._owner, "objective", result)
        loss, *judged = self._parts(result)
        value = scalar(self._owner, "closure", loss)
        return self._judged(*judged) if judged and math.isfinite(value) else value

    def _parts(self, result: Any) -> tuple[Any, ...]:
        """Return the loss and, where a judge needs them, outputs and targets."""
        if not isinstance(result, tuple):
            if self._judge is None:
                return (result,)
            raise TypeError(
                f"{self._owner}(accept_on=...) needs a closure that returns (loss, outputs, "
                f"targets), got {_shown(result)}"
            )
        if len(result) != 3:
            raise TypeError(
                f"{self._owner}.step(closure): the closure must return the loss or (loss, outputs, "
                f"targets), got a tuple of {len(result)}"
            )
        return result if self._judge is not None else result[:1]

    def _judged(self, outputs: Any, targets: Any) -> float:
        assert self._judge is not None
        with torch.no_grad():
            return scalar(self._owner, "accept_on", self._judge(outputs, targets))


def scalar(owner: str, argument: str, value: Any) -> float:
    """Return a loss, or what is compared instead, as a float.

    Raises:
        TypeError: if it is neither a number nor a tensor of real numbers.
        ValueError: if it is a tensor of more or less than one element.
    """
    what = "value" if argument in ("objective", "accept_on") else "loss"
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(
                f"{owner}.step({argument}): the {what} must be a scalar, got a tensor of shape "
                f"{tuple(value.shape)}; reduce it, for example by .mean()"
            )
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{owner}.step({argument}): the {what} must be a scalar, got {value!r}")
    return float(value)


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, Tensor) else repr(value)


def _check(
    owner: str, closure: Any, loss: Any, probe: Any, objective: Any, judge: Judge | None
) -> None:
    if judge is not None and (closure is None or objective is not None):
        raise TypeError(
            f"{owner}(accept_on=...) reads outputs and targets off a closure: step must be given "
            "a closure that returns (loss, outputs, targets) and no objective=..., got "
            f"{'an objective' if objective is not None else 'no closure'}"
        )
    if (closure is None) == (loss is None):
        raise TypeError(
            f"{owner}.step() must be given a closure or loss=..., or follow the backward of a "
            f"function wrapped by opt.record(fn), got {'none' if closure is None else 'both'} of "
            "these; write opt.step(lambda: loss_fn(...))"
        )
    if closure is None and probe is None and objective is None:
        raise TypeError(
            f"{owner}.step(loss=...) must be given probe=... too, a function that computes the "
            "loss on the same minibatch again, got none"
        )
    if closure is not None and probe is not None:
        raise TypeError(
            f"{owner}.step(closure) must not be given probe=...: the closure is evaluated again, "
            f"got {probe!r}"
        )
    for name, function in (("closure", closure), ("probe", probe), ("objective", objective)):
        if function is not None and not callable(function):
            raise TypeError(f"{owner}.step({name}=...) must be callable, got {function!r}")
