"""What an evaluation must leave in a module as it was: training flags, buffers, weights."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn


@contextlib.contextmanager
def flags_kept(modules: list[nn.Module], *, evaluate: bool) -> Iterator[None]:
    """Put each submodule's training flag back; with ``evaluate``, in evaluation mode meanwhile.

    The flags are set directly: ``Module.train`` may have side effects in subclasses. It is
    switched off meanwhile: many closures begin with ``model.train()``.
    """
    flags = [(module, module.training, module.__dict__.get("train")) for module in modules]
    if evaluate:
        for module in modules:
            module.training = False
            module.__dict__["train"] = functools.partial(_unmoved, module)
    try:
        yield
    finally:
        for module, training, train in flags:
            if module.training != training:
                module.training = training
            if train is not None:
                module.__dict__["train"] = train
            elif evaluate:
                del module.__dict__["train"]


def _unmoved(module: nn.Module, mode: bool = True) -> nn.Module:  # noqa: ARG001
    return module


class Buffers:
    """The buffers of modules as they are now, to be put back after a forward.

    Args:
        modules: those that may own some.
        extra: further tensors.
    """

    @torch.no_grad()
    def __init__(self, modules: list[nn.Module], extra: list[Tensor]) -> None:
        self._entries = [(module, dict(module._buffers)) for module in modules if module._buffers]
        buffers = [b for _, named in self._entries for b in named.values() if b is not None]
        self._copies = [(b, b.clone()) for b in buffers + extra if not is_expanded(b)]

    @torch.no_grad()
    def put_back(self) -> None:
        """Make them what they were, also one that the forward replaced by a new tensor."""
        for buffer, kept in self._copies:
            buffer.copy_(kept)
        for module, named in self._entries:
            module._buffers.clear()
            module._buffers.update(named)


@contextlib.contextmanager
def buffers_kept(modules: list[nn.Module], extra: list[Tensor]) -> Iterator[None]:
    """Put every buffer back."""
    buffers = Buffers(modules, extra)
    try:
        yield
    finally:
        buffers.put_back()


@contextlib.contextmanager
def weights_kept(weights: Iterable[Tensor]) -> Iterator[None]:
    """Put weights back, also ones that an objective rounds or prunes in place."""
    with torch.no_grad():
        copies = [(w, w.detach().clone()) for w in weights]
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, kept in copies:
                weight.copy_(kept)


def is_expanded(tensor: Tensor) -> bool:
    """Tell a tensor that torch lets nobody write into."""
    if tensor.layout != torch.strided or 0 not in tensor.stride():
        return False
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return any(stride == 0 and size > 1 for stride, size in pairs)


def show_new_weights(modules: list[nn.Module]) -> None:
    """Make the next forward see weights that were written in place."""
    # An autocast around all of it would go on using its casts of the former weights.
    torch.clear_autocast_cache()
    reshard(modules)


def reshard(modules: list[nn.Module]) -> None:
    """Make FSDP gather its weights anew: after a forward without gradients it does not."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None:
        for module in modules:
            if isinstance(module, fsdp.FSDPModule):
                module.reshard()
