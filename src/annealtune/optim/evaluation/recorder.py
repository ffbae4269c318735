"""Remembers how a loss was computed, so that a bare ``step()`` can compute it again.

``f = opt.record(fn)`` wraps the function that computes the loss of a minibatch. Every call that
leads to a ``backward`` is remembered until the next step: its arguments, the random state and the
autocast before it, and the factor that the caller applied to the loss (1 / accumulation steps, a
GradScaler's scale), which is the gradient that arrives at the loss.
"""

from __future__ import annotations

import contextlib
import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from annealtune.optim.evaluation import autocast
from annealtune.optim.evaluation.random_state import RandomState
from annealtune.optim.evaluation.wrappers import Exchanges, Wrappers, through
from annealtune.optim.parameters import gradients_of

Function = TypeVar("Function", bound=Callable[..., Any])


class Call:
    """One recorded computation of a loss."""

    def __init__(
        self,
        owner: str,
        compute: Callable[[], Any],
        wrappers: Wrappers,
        *,
        differentiated: bool = True,
    ) -> None:
        self._owner = owner
        self._compute = compute
        self._wrapper = DistributedDataParallel._active_ddp_module  # whose forward this is part of
        self.exchanges: Exchanges | None = None  # whether its gradient was to be exchanged
        self.start = RandomState.capture()
        self._autocast = autocast.present()
        self.factor: Tensor | None = None  # None until its backward
        self.result = compute()
        if wrappers.modules:  # the forward may have been the first to show one
            self.exchanges = wrappers.present()
        self.loss = _loss_of(owner, self.result)
        if not differentiated:
            self.loss = self.loss.detach()
            self.factor = torch.ones_like(self.loss)
            return
        if not self.loss.requires_grad:
            raise ValueError(
                f"{owner}.record(fn): the loss must depend on parameters that require a gradient, "
                f"got {self.loss!r}"
            )
        self.loss.register_hook(self._note_factor)
        self.loss = self.loss.detach()  # lets go of the graph when the caller does

    def _note_factor(self, gradient: Tensor) -> None:
        before = self.factor  # of another backward of the same loss: gradients add up
        self.factor = gradient.detach().clone() if before is None else before + gradient.detach()

    @property
    def is_done(self) -> bool:
        """Whether its backward was made."""
        return self.factor is not None

    @property
    def is_withheld(self) -> bool:
        """Whether FSDP2 keeps its gradient to itself until a later one is exchanged."""
        return self.exchanges is not None and self.exchanges.withhold

    def again(self) -> Tensor:
        """Compute the loss at the weights as they are now, with the same random numbers."""
        with contextlib.ExitStack() as stack:
            for device, enabled, dtype in self._autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
            self.start.restore()
            if self._wrapper is not None:
                return _loss_of(self._owner, through(self._wrapper, self._compute))
            return _loss_of(self._owner, self._compute())


class Recorder:
    """The calls of recorded functions since the last step.

    Args:
        wrappers: DDP and FSDP2 around the model.
        before_call: is called before a call that is remembered.
        differentiates: whether only calls count that lead to a backward.
    """

    def __init__(
        self,
        owner: str,
        base: Optimizer,
        wrappers: Wrappers,
        before_call: Callable[[], None] | None = None,
        *,
        differentiates: bool = True,
    ) -> None:
        self._owner = owner
        self._base = base
        self._wrappers = wrappers
        self._before_call = before_call
        self._differentiates = differentiates
        self._calls: list[Call] = []
        self._losses: list[Tensor] = []  # of calls that need not be repeated
        self.paused = False  # whether nothing is remembered at the moment
        self.used = False  # whether a function was ever recorded
        self.remembers = True  # whether calls must be repeatable; it keeps a minibatch alive
        self._after_replay: OrderedDict[int, Callable[[], Any]] = OrderedDict()

    def wrap(self, function: Function) -> Function:
        """Return a function that does the same and is remembered.

        Raises:
            TypeError: if it is no function.
        """
        if not callable(function):
            raise TypeError(f"{self._owner}.record(fn) must be given a function, got {function!r}")
        self.used = True

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if self.paused or not torch.is_grad_enabled():
                return function(*args, **kwargs)
            if not self.remembers:
                result = function(*args, **kwargs)
                self._note_loss(_loss_of(self._owner, result))
                return result
            self._forget_reset()
            if self._before_call is not None:
                self._before_call()
            compute = functools.partial(function, *args, **kwargs)
            try:
                self.paused = True  # a recorded function that it calls is a part of it
                call = Call(
                    self._owner, compute, self._wrappers, differentiated=self._differentiates
                )
            finally:
                self.paused = False
            self._calls.append(call)
            result, call.result = call.result, None
            return result

        return recorded  # type: ignore[return-value]

    def register_after_replay(self, function: Callable[[], Any]) -> RemovableHandle:
        """Have a function among those of `after_replay` until the handle is removed."""
        handle = RemovableHandle(self._after_replay)
        self._after_replay[handle.id] = function
        return handle

    @property
    def after_replay(self) -> tuple[Callable[[], Any], ...]:
        """What the loop does to its gradients, to be done to those that are made here."""
        return tuple(self._after_replay.values())

    def _note_loss(self, loss: Tensor) -> None:
        """Keep a loss once its backward is made: one of a validation says nothing of the run."""
        if loss.requires_grad:
            value = loss.detach()
            loss.register_hook(lambda _: self._losses.append(value))

    def take(self) -> list[Call]:
        """Return the calls whose backward was made since the last step, and forget all."""
        if not self._calls:
            return []
        calls = [call for call in self._calls if call.is_done]
        self.forget()
        return calls

    def take_losses(self) -> list[Tensor]:
        """Return the losses whose backward was made since the last step, and forget all."""
        losses = self._losses
        self.forget()
        return losses

    def forget(self) -> None:
        """Let go of everything."""
        self._calls, self._losses = [], []

    def _forget_reset(self) -> None:
        """Forget calls whose gradients are gone: ``model.zero_grad()`` tells nobody."""
        is_done = self._differentiates and any(call.is_done for call in self._calls)
        if is_done and not gradients_of(self._base) and not self._calls[-1].is_withheld:
            self.forget_done()

    def forget_done(self) -> None:
        """Hear that gradients are reset: calls that made some belong to a step that was skipped.

        Calls without a backward stay: many loops reset gradients between forward and backward.
        """
        if not self.paused and (self._calls or self._losses):
            self._calls = [call for call in self._calls if not call.is_done]
            self._losses = []

    def __getstate__(self) -> dict[str, Any]:
        # Functions of the loop stay with the original, as hooks do.
        own = {"_calls": [], "_losses": [], "paused": False, "_after_replay": OrderedDict()}
        return {**self.__dict__, **own}


def _loss_of(owner: str, result: Any) -> Tensor:
    """Return the loss that a recorded function computed, alone, first in a tuple, or by name."""
    loss = result[0] if isinstance(result, tuple) and result else result
    if isinstance(result, Mapping):  # of transformers' models, for one
        loss = result.get("loss")
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        shown = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise TypeError(
            f"{owner}.record(fn): the function must return a scalar loss, a tuple that begins with "
            f"one, or a dict with one under 'loss', got {shown}"
        )
    return loss
