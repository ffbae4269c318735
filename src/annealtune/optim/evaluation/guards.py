"""What an evaluation must leave in a module as it was: training flags, buffers, weights."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

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

    def __init__(self, modules: Iterable[nn.Module], extra: Iterable[Tensor] = ()) -> None:
        self._copies = Copies()
        self.take(modules, extra)

    def take(self, modules: Iterable[nn.Module], extra: Iterable[Tensor] = ()) -> None:
        """Note them as they are now, into the copies that are there if it is the same ones."""
        self._entries: list[tuple[nn.Module, dict[str, Tensor | None]]] = []
        buffers = list(extra)
        for module in modules:
            if module._buffers:
                self._entries.append((module, dict(module._buffers)))
                buffers += [b for b in module._buffers.values() if b is not None]
        self._copies.take([b for b in buffers if not is_out_of_reach(b)] if buffers else [])

    def put_back(self) -> None:
        """Make them what they were, also one that the forward replaced by a new tensor."""
        self._copies.put_back()
        for module, named in self._entries:
            module._buffers.clear()
            module._buffers.update(named)

    def copies(self) -> dict[int, Tensor]:
        """Return what they were, by the id of the tensor."""
        return {id(buffer): kept for buffer, kept in self._copies.pairs()}


class Weights:
    """Weights as they are now, also ones that an objective rounds or prunes in place."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        self._copies = Copies()
        self._copies.take(list(weights))

    def put_back(self) -> None:
        """Make them what they were."""
        self._copies.put_back()


class Copies:
    """Copies of tensors, made and put back by one call for all of a device and type."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._forms: list[Any] = []
        # Lists of one device and type, each with that of its copies; other kinds one by one.
        self._groups: list[tuple[list[Tensor], list[Tensor]]] = []

    @torch.no_grad()
    def take(self, tensors: list[Tensor]) -> None:
        """Copy tensors; where it is the same ones as the last time, nothing is allocated."""
        if not tensors:
            self._tensors, self._forms, self._groups = [], [], []
            return
        forms = [(t.shape, t.dtype, t.device) for t in tensors]
        if forms == self._forms and all(map(operator.is_, tensors, self._tensors)):
            for group, copies in self._groups:
                _copy(copies, group)
            return
        kinds: dict[Any, list[Tensor]] = {}
        for t in tensors:
            is_plain = type(t) in (Tensor, nn.Parameter)
            kinds.setdefault((t.device, t.dtype) if is_plain else id(t), []).append(t)
        self._forms = []  # should an interrupt come now
        self._groups = [(group, [t.detach().clone() for t in group]) for group in kinds.values()]
        self._tensors, self._forms = tensors, forms

    @torch.no_grad()
    def put_back(self) -> None:
        """Write the copies into the tensors."""
        for group, copies in self._groups:
            _copy(group, copies)

    def pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield every tensor and its copy."""
        for group, copies in self._groups:
            yield from zip(group, copies, strict=True)


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if len(targets) == 1:
        targets[0].copy_(sources[0])
    else:
        torch._foreach_copy_(targets, sources)


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
