"""What an evaluation must leave in a module as it was: training flags, buffers, weights."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator

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


@contextlib.contextmanager
def buffers_kept(modules: list[nn.Module], extra: list[Tensor]) -> Iterator[None]:
    """Put every buffer back, also one that the forward replaced by a new tensor."""
    entries = [(module, dict(module._buffers)) for module in modules if module._buffers]
    buffers = [b for _, named in entries for b in named.values() if b is not None] + extra
    tensors = [b for b in buffers if not _is_expanded(b)]
    with torch.no_grad():
        copies = [b.clone() for b in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, kept in zip(tensors, copies, strict=True):
                buffer.copy_(kept)
        for module, named in entries:
            module._buffers.clear()
            module._buffers.update(named)


def _is_expanded(tensor: Tensor) -> bool:
    """Tell a tensor that torch lets nobody write into."""
    if tensor.layout != torch.strided or 0 not in tensor.stride():
        return False
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return any(stride == 0 and size > 1 for stride, size in pairs)


def reshard(modules: list[nn.Module]) -> None:
    """Make FSDP gather its weights anew: after a forward without gradients it does not."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None:
        for module in modules:
            if isinstance(module, fsdp.FSDPModule):
                module.reshard()
