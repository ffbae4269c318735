"""What an evaluation must leave in a module as it was: training flags, buffers, weights."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn

_GRADIENT = operator.attrgetter("grad")


class Guard(Protocol):
    """Something as it is now, to be put back after an evaluation."""

    def put_back(self) -> None:
        """Make it what it was."""


@contextlib.contextmanager
def kept(*guards: Guard) -> Iterator[None]:
    """Put everything back at the end, interrupted or not."""

    def put_back() -> None:
        for guard in guards:
            guard.put_back()

    try:
        try:
            yield
        finally:
            put_back()
    except BaseException:
        put_back()  # once more: an interrupt can hit the first attempt
        raise


@contextlib.contextmanager
def rewound(before: Buffers | None, modules: list[nn.Module]) -> Iterator[None]:
    """Give modules the buffers they had before, meanwhile."""
    with kept(Buffers(modules)):
        if before is not None:
            before.put_back()
        yield


class Flags:
    """The training flags of modules as they are now.

    They are set directly: ``Module.train`` may have side effects in subclasses.
    """

    def __init__(self, modules: list[nn.Module]) -> None:
        self._flags = [(module, module.training, vars(module).get("train")) for module in modules]

    def evaluate(self) -> None:
        """Switch to evaluation; ``train()``, with which many closures begin, does nothing then."""
        for module, *_ in self._flags:
            module.training = False
            vars(module)["train"] = functools.partial(_unmoved, module)

    def put_back(self) -> None:
        """Make them what they were."""
        for module, training, own_train in self._flags:
            if module.training != training:
                module.training = training
            if own_train is not None:
                vars(module)["train"] = own_train
            else:
                vars(module).pop("train", None)


def _unmoved(module: nn.Module, mode: bool = True) -> nn.Module:  # noqa: ARG001
    return module


class Buffers:
    """The buffers of modules, and further tensors, as they are now."""

    @torch.no_grad()
    def __init__(self, modules: Iterable[nn.Module], extra: Iterable[Tensor] = ()) -> None:
        self._entries: list[tuple[nn.Module, dict[str, Tensor | None]]] = []
        self._copies: list[tuple[Tensor, Tensor]] = []
        buffers: list[Tensor | None] = list(extra)
        for module in modules:
            if module._buffers:
                self._entries.append((module, dict(module._buffers)))
                buffers += module._buffers.values()
        for buffer in buffers:
            if buffer is not None and not is_out_of_reach(buffer):
                self._copies.append((buffer, buffer.clone()))

    @torch.no_grad()
    def put_back(self) -> None:
        """Make them what they were, also one that the forward replaced by a new tensor."""
        for buffer, kept in self._copies:
            buffer.copy_(kept)
        for module, named in self._entries:
            module._buffers.clear()
            module._buffers.update(named)

    def copies(self) -> dict[int, Tensor]:
        """Return what they were, by the id of the tensor."""
        return {id(buffer): kept for buffer, kept in self._copies}


class Weights:
    """Weights as they are now, also ones that an objective rounds or prunes in place."""

    @torch.no_grad()
    def __init__(self, weights: Iterable[Tensor]) -> None:
        self._copies = [(w, w.detach().clone()) for w in weights]

    @torch.no_grad()
    def put_back(self) -> None:
        """Make them what they were."""
        for weight, kept in self._copies:
            weight.copy_(kept)


def weights_kept(weights: Iterable[Tensor]) -> AbstractContextManager[None]:
    """Put weights back."""
    return kept(Weights(weights))


class Gradients:
    """The gradients of tensors as they are now, to be out of reach meanwhile."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        tensors = list(tensors)
        self._gradients = list(zip(tensors, map(_GRADIENT, tensors), strict=True))

    def has_one_of(self, tensor: Tensor) -> bool:
        """Tell whether a tensor had a gradient."""
        return any(t is tensor and gradient is not None for t, gradient in self._gradients)

    def put_aside(self) -> None:
        """Let nobody write into them."""
        for t, _ in self._gradients:
            t.grad = None

    def put_back(self) -> None:
        """Make them what they were."""
        for t, gradient in self._gradients:
            t.grad = gradient


def is_out_of_reach(tensor: Tensor) -> bool:
    """Tell a tensor that nobody can write into: one that is expanded, or has no values yet."""
    if torch.nn.parameter.is_lazy(tensor):
        return True
    if tensor.layout != torch.strided or 0 not in tensor.stride():
        return False
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return any(stride == 0 and size > 1 for stride, size in pairs)


def show_new_weights(modules: list[nn.Module]) -> None:
    """Make the next forward see weights that were written in place."""
    # An autocast around all of it would go on using its casts of the former weights.
    torch.clear_autocast_cache()
    # FSDP gathers its weights anew only after a forward with gradients.
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None:
        for module in modules:
            if isinstance(module, fsdp.FSDPModule):
                module.reshard()
