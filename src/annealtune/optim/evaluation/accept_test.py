"""What the accept test compares: the loss of a minibatch, or something else, before and after."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annealtune.errors import NonFiniteLossError
from annealtune.optim.evaluation.minibatch import (
    ClosureMinibatch,
    GivenMinibatch,
    Minibatch,
    not_callable,
    scalar,
    unread,
)
from annealtune.optim.evaluation.objectives import Judge
from annealtune.optim.evaluation.probe import Graph, Probe
from annealtune.optim.evaluation.random_state import RandomState
from annealtune.optim.parameters import read
from annealtune.optim.ranks import Ranks


class AcceptTest:
    """The two values of one accept test, and the gradient of its minibatch.

    They are losses, or values of an objective, or of a judge: a function of the outputs and targets
    that the closure returns beside the loss. With several ranks they are means over all of them.

    Args:
        minibatch: with its loss.
        objective: what is compared instead, if anything.
        judge: what is compared instead, if anything.
        ranks: the processes that decide together.
        about: what these must have in common.
        waits: whether numbers may be read as late as in `known`, all at once: until then `before`
            and `after` return tensors. Ignored where a number is needed to go on.
    """

    def __init__(
        self,
        owner: str,
        probe: Probe,
        minibatch: Minibatch,
        objective: Callable[[], Any] | None,
        judge: Judge | None,
        ranks: Ranks,
        about: tuple[object, ...] = (),
        *,
        waits: bool = False,
    ) -> None:
        self._owner = owner
        self.waits = waits and objective is None and judge is None and ranks.count == 1
        self._number = unread if self.waits else scalar
        self._ranks = ranks
        self._about = about
        self._probe = probe
        self._minibatch = minibatch
        self.start = minibatch.start
        self._judge = judge
        self._value: Tensor | float | None = None  # at the current point, once it is computed
        self._loss: Tensor | float = math.nan
        self._evaluate = objective or minibatch.evaluate
        self._evaluates_loss = objective is None
        # A closure is written for training and may enable gradients out of habit; a function that
        # was written for the accept test enables them only if it needs them.
        self._evaluates_closure = objective is None and isinstance(minibatch, ClosureMinibatch)
        self._graph: Graph = "never" if self._evaluates_closure else "if-enabled"
        self._inputs: list[Tensor] = []  # with gradients of their own, as in adversarial training

    def backpropagate(self) -> Any:
        """Return the loss with its gradient in place, whatever of that the closure does itself."""
        minibatch = self._minibatch
        if not isinstance(minibatch, ClosureMinibatch):
            compared = minibatch.compared()
            self._loss = self._number(self._owner, "loss", compared)
            if self._evaluates_loss and self._probe.mode == "train":
                self._value = self._loss
            return minibatch.returned if isinstance(minibatch, GivenMinibatch) else compared
        with self._probe.first_forward() as watch:
            loss, *judged = self._parts(minibatch.evaluate())
        self._loss = self._number(self._owner, "closure", loss)
        # A backward for the sake of the inputs does not count, once its gradients are reset.
        if not (watch.called_backward and minibatch.has_gradient()):
            minibatch.differentiate(loss)
        if self._evaluates_loss and self._probe.mode == "train":
            self._value = self._loss
            if judged and math.isfinite(float(self._loss)):
                end = RandomState.capture()
                self._value = self._judged(*judged)
                end.restore()
        if self._evaluates_closure:
            self._inputs = self._probe.inputs_among(watch.read.values()) if watch.read else []
            if self._inputs:
                self._graph = "and-backward"
            elif watch.calls_grad:
                self._graph = "always"
        return loss.detach() if isinstance(loss, Tensor) else loss

    def before(self) -> Tensor | float:
        """Return what the accept test compares with, at the current point.

        A loss that is not finite comes first: its gradient leads nowhere, however well an
        objective such as the accuracy may hide that.

        Raises:
            NonFiniteLossError: if the loss is finite and what is compared instead is not.
        """
        if self.waits:
            if self._value is None:
                self._value = self._measure()
            return self._value
        several = self._ranks.count > 1
        loss = float(self._loss)
        if several:
            self._loss = loss = self._ranks.mean(loss, "loss", *self._about)
        if not math.isfinite(loss):
            return loss
        if self._value is None:
            value = float(self.after())
        elif several:
            value = self._ranks.mean(float(self._value), "value", *self._about)
        else:
            value = float(self._value)
        if not math.isfinite(value) and (self._judge is not None or not self._evaluates_loss):
            compared = "accept_on" if self._evaluates_loss else "objective"
            raise NonFiniteLossError(
                f"{self._owner}.step({compared}): the value at the current weights must be finite, "
                f"got {value!r} where the loss is {loss:.6g}; the weights are unchanged"
            )
        return value

    def after(self) -> Tensor | float:
        """Return what the accept test measures at the point where the weights are now.

        It is NaN where a weight is broken: an accuracy does not show that, nor does every loss.
        """
        value = self._measure()
        if self.waits:
            return value
        number = float(value) if self._probe.weights_are_finite() else math.nan
        return self._ranks.mean(number, "after", *self._about) if self._ranks.count > 1 else number

    def known(self, value: Tensor | float, new_value: Tensor | float) -> tuple[float, float]:
        """Return what `before` and `after` returned as numbers: the one wait for the device."""
        if not self.waits:
            return float(value), float(new_value)
        loss, before, after, *marks = read(
            self._loss, value, new_value, *self._probe.finite_marks()
        )
        if not all(map(math.isfinite, marks)) and not self._probe.weights_are_finite():
            after = math.nan
        return (before if math.isfinite(loss) else loss), after

    def _measure(self) -> Tensor | float:
        with self._probe.replay(
            self.start, graph=self._graph, weights=not self._evaluates_loss, inputs=self._inputs
        ):
            result = self._evaluate()
            if not self._evaluates_loss:
                return scalar(self._owner, "objective", result)
            loss, *judged = self._parts(result)
            value = self._number(self._owner, "closure", loss)
            if judged and math.isfinite(value):
                value = self._judged(*judged)
            return value

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


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, Tensor) else repr(value)


def check_way(
    owner: str, closure: Any, loss: Any, probe: Any, objective: Any, judge: Judge | None
) -> None:
    """Refuse arguments of a step that contradict each other."""
    if judge is not None and (closure is None or objective is not None):
        raise TypeError(
            f"{owner}(accept_on=...) reads outputs and targets off a closure: step must be given "
            "a closure that returns (loss, outputs, targets) and no objective=..., got "
            f"{'an objective' if objective is not None else 'no closure'}"
        )
    if closure is not None and loss is not None:
        raise TypeError(
            f"{owner}.step() must be given a closure or loss=..., got both of these; write "
            "opt.step(lambda: loss_fn(...))"
        )
    if closure is not None and probe is not None:
        raise TypeError(
            f"{owner}.step(closure) must not be given probe=...: the closure is evaluated again, "
            f"got {probe!r}"
        )
    if objective is not None and not callable(objective):
        raise not_callable(owner, "objective", objective)
