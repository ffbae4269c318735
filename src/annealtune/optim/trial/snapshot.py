"""Undo by copy: weights and optimizer state, bit for bit.

Undoing a step by arithmetic (``w += lr * grad``) leaves rounding errors in many weights, and
re-pointing ``p.data`` pulls the storage away under whoever else holds it. So everything a step may
write into is copied before and copied back in place.
"""

from __future__ import annotations

import copy
import operator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

_VERSION = operator.attrgetter("_version")  # it counts writes into a tensor
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)


class Snapshot:
    """What an optimizer's step may change: parameters, per-parameter state, group options.

    The copies are allocated once and reused: the extra memory is one copy of the weights and one
    of the optimizer's state. Gradients are copied on request only, for a base that writes into
    them.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> optimizer = torch.optim.SGD([weight], lr=0.1)
        >>> snapshot = Snapshot(optimizer)
        >>> snapshot.take()
        >>> weight.data += 1
        >>> snapshot.restore()
        >>> weight.item()
        1.0
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._tensors: list[Tensor] = []
        self._copies: list[Tensor] = []
        self._gradients: list[tuple[Tensor, Tensor | None]] = []
        self._present: list[Tensor] = []  # the gradients among them
        self._gradient_copies: list[Tensor] = []
        self._gradient_versions: list[int] = []
        self._groups: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._state: dict[Any, Any] = {}

    @torch.no_grad()
    def take(self, *, gradients: bool = False) -> None:
        """Copy the present state; ``gradients`` are included for a base that writes into them."""
        tensors: list[Tensor] = []
        present: list[Tensor] = []
        self._groups, self._gradients = [], []
        for group in self._optimizer.param_groups:
            options = dict(group)
            del options["params"]
            self._groups.append((group, _kept(options, tensors)))
            for p in group["params"]:
                self._gradients.append((p, p.grad))
                if p.grad is not None:
                    present.append(p.grad)
                if p.requires_grad or p.grad is not None:
                    tensors.append(p)
        self._state = _kept(self._optimizer.state, tensors)
        self._tensors = tensors
        self._copies = _copied(tensors, self._copies)
        self._gradient_copies = _copied(present, self._gradient_copies) if gradients else []
        self._present = present
        self._gradient_versions = list(map(_VERSION, present))

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back in place; what was not there when it was taken is removed."""
        _copy(self._tensors, self._copies)
        for p, gradient in self._gradients:
            if p.grad is not gradient:
                p.grad = gradient
        if self._gradient_copies and self._present:  # not after `release`
            _copy(self._present, self._gradient_copies)
        for group, options in self._groups:
            for key in group.keys() - options.keys() - {"params"}:
                del group[key]
            group.update(_kept(options, []))  # a copy: what is put back can be put back again
        state: dict[Any, Any] = self._optimizer.state
        for key in [key for key in state if key not in self._state]:
            del state[key]
        for key, kept in self._state.items():
            entry = _kept(kept, [])
            if isinstance(entry, dict) and isinstance(state.get(key), dict):
                state[key].clear()
                state[key].update(entry)
            else:
                state[key] = entry

    def __getstate__(self) -> dict[str, Any]:
        return {"_optimizer": self._optimizer}  # the copies are for the next `restore` alone

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_optimizer"])  # type: ignore[misc]

    def release(self) -> None:
        """Let go of the gradients, so that ``zero_grad`` frees them; the copies stay for reuse."""
        self._gradients, self._present = [], []

    def gradients_are_untouched(self) -> bool:
        """Tell whether nothing was written into the gradients; if so, forget their copies.

        Where there are copies, values are compared too: a write through ``.data`` leaves the
        version as it was.
        """
        untouched = self._gradient_versions == list(map(_VERSION, self._present))
        if untouched and self._gradient_copies:
            untouched = all(map(torch.equal, self._present, self._gradient_copies))
        if untouched:
            self._gradient_copies = []
        return untouched


def _copied(tensors: list[Tensor], copies: list[Tensor]) -> list[Tensor]:
    """Copy into the old copies, and into new ones where an old one does not fit."""
    del copies[len(tensors) :]
    for index, t in enumerate(tensors):
        if index == len(copies):
            copies.append(torch.empty_like(t, requires_grad=False))
            continue
        c = copies[index]
        if t.dtype is not c.dtype or t.shape != c.shape or t.device != c.device:
            copies[index] = torch.empty_like(t, requires_grad=False)
    _copy(copies, tensors)
    return copies


def are_plain(tensors: list[Tensor]) -> bool:
    """Tell whether foreach knows them: subclasses, such as FSDP's sharded tensors, it does not."""
    return {Tensor, torch.nn.Parameter}.issuperset(map(type, tensors))


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets and are_plain(targets):
        torch._foreach_copy_(targets, sources)
    else:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)


def _kept(value: Any, tensors: list[Tensor]) -> Any:
    """Copy containers, keep tensors by reference and note them as to be copied."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return value
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            kept[key] = item if isinstance(item, _PLAIN) else _kept(item, tensors)
        return kept
    if type(value) in (list, tuple):
        return type(value)(_kept(item, tensors) for item in value)
    return copy.deepcopy(value)
