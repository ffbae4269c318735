"""What an evaluation must leave in a module as it was: training flags, buffers, weights."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn


class Flags:
    """The training flags of modules as they are now.

    They are set directly: ``Module.train`` may have side effects in subclasses.

    Args:
        modules: those that have one.
    """

    def __init__(self, modules: list[nn.Module]) -> None:
        self._flags = [(module, module.training, "train" in vars(module)) for module in modules]
        self._trains = [vars(module).get("train") for module in modules]

    def evaluate(self) -> None:
        """Switch to evaluation; ``train()``, with which many closures begin, does nothing then."""
        for module, *_ in self._flags:
            module.training = False
            vars(module)["train"] = functools.partial(_unmoved, module)

    def put_back(self) -> None:
        """Make them what they were."""
        for (module, training, has_own), train in zip(self._flags, self._trains, strict=True):
            if module.training != training:
                module.training = training
            if has_own:
                vars(module)["train"] = train
            else:
                vars(module).pop("train", None)


@contextlib.contextmanager
def flags_kept(modules: list[nn.Module], *, evaluate: bool) -> Iterator[None]:
    """Put each submodule's training flag back; with ``evaluate``, in evaluation mode meanwhile."""
    flags = Flags(modules)
    try:
        if evaluate:
            flags.evaluate()
        yield
    finally:
        flags.put_back()


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
        self._copies = [(b, b.clone()) for b in buffers + extra if not is_out_of_reach(b)]

    @torch.no_grad()
    def put_back(self) -> None:
        """Make them what they were, also one that the forward replaced by a new tensor."""
        for buffer, kept in self._copies:
            buffer.copy_(kept)
        for module, named in self._entries:
            module._buffers.clear()
            module._buffers.update(named)


@contextlib.contextmanager
def rewound(before: Buffers | None, model: nn.Module | None) -> Iterator[None]:
    """Give a model the buffers it had before, meanwhile."""
    if before is None or model is None:
        yield
        return
    with buffers_kept(list(model.modules()), []):
        before.put_back()
        yield


@contextlib.contextmanager
def buffers_kept(modules: list[nn.Module], extra: list[Tensor]) -> Iterator[None]:
    """Put every buffer back."""
    buffers = Buffers(modules, extra)
    try:
        yield
    finally:
        buffers.put_back()


class Weights:
    """Weights as they are now, also ones that an objective rounds or prunes in place.

    Args:
        weights: to be copied.
    """

    @torch.no_grad()
    def __init__(self, weights: Iterable[Tensor]) -> None:
        self._copies = [(w, w.detach().clone()) for w in weights]

    @torch.no_grad()
    def put_back(self) -> None:
        """Make them what they were."""
        for weight, kept in self._copies:
            weight.copy_(kept)


@contextlib.contextmanager
def weights_kept(weights: Iterable[Tensor]) -> Iterator[None]:
    """Put weights back."""
    kept = Weights(weights)
    try:
        yield
    finally:
        kept.put_back()


class Gradients:
    """The gradients of tensors as they are now, to be out of reach meanwhile.

    Args:
        tensors: that may have one.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._gradients = [(t, t.grad) for t in tensors]

    @property
    def differentiated(self) -> list[Tensor]:
        """The tensors that have one."""
        return [t for t, gradient in self._gradients if gradient is not None]

    def put_aside(self) -> None:
        """Let nobody write into them."""
        for t in self.differentiated:
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
    reshard(modules)


def reshard(modules: list[nn.Module]) -> None:
    """Make FSDP gather its weights anew: after a forward without gradients it does not."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None:
        for module in modules:
            if isinstance(module, fsdp.FSDPModule):
                module.reshard()
