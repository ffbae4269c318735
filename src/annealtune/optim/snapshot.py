"""Undo by copy: weights and optimizer state, bit for bit.

Undoing a step by arithmetic (``w += lr * grad``) leaves rounding errors in many weights, and
re-pointing ``p.data`` pulls the storage away under whoever else holds it. So everything a step may
write into is copied before and copied back in place.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)


class Snapshot:
    """What an optimizer's step may change: parameters, per-parameter state, group options.

    The copies are allocated once and reused: the extra memory is one copy of the weights and one
    of the optimizer's state. Gradients are copied on request only, for a base that writes into
    them.

    Args:
        optimizer: the optimizer whose steps are to be undone.

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
        self._gradient_copies: list[Tensor] = []
        self._gradient_versions: list[int] = []
        self._groups: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._state: dict[Any, Any] = {}

    @torch.no_grad()
    def take(self, *, gradients: bool = False) -> None:
        """Copy the present state; ``gradients`` are included for a base that writes into them."""
        tensors: list[Tensor] = []
        self._groups = []
        self._gradients = []
        for group in self._optimizer.param_groups:
            options = {key: value for key, value in group.items() if key != "params"}
            self._groups.append((group, _kept(options, tensors)))
            for p in group["params"]:
                self._gradients.append((p, p.grad))
                if p.requires_grad or p.grad is not None:
                    tensors.append(p)
        self._state = {key: _kept(entry, tensors) for key, entry in self._optimizer.state.items()}
        self._tensors = tensors
        self._copies = _copied(tensors, self._copies)
        present = self._present_gradients()
        self._gradient_copies = _copied(present, self._gradient_copies) if gradients else []
        self._gradient_versions = [g._version for g in present]

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back in place; what was not there when it was taken is removed."""
        _copy(self._tensors, self._copies)
        for p, gradient in self._gradients:
            if p.grad is not gradient:
                p.grad = gradient
        if self._gradient_copies and self._gradients:  # not after `release`
            _copy(self._present_gradients(), self._gradient_copies)
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

    def release(self) -> None:
        """Let go of the gradients, so that ``zero_grad`` frees them; the copies stay for reuse."""
        self._gradients = []

    def gradients_are_untouched(self) -> bool:
        """Tell whether nothing was written into the gradients; if so, forget their copies.

        Where there are copies, values are compared too: a write through ``.data`` leaves the
        version as it was.
        """
        present = self._present_gradients()
        untouched = [g._version for g in present] == self._gradient_versions and all(
            torch.equal(now, before)
            for now, before in zip(present, self._gradient_copies, strict=False)
        )
        if untouched:
            self._gradient_copies = []
        return untouched

    def _present_gradients(self) -> list[Tensor]:
        return [gradient for _, gradient in self._gradients if gradient is not None]


def _copied(tensors: list[Tensor], copies: list[Tensor]) -> list[Tensor]:
    """Copy into the old copies, and into new ones where an old one does not fit."""
    del copies[len(tensors) :]
    for index, t in enumerate(tensors):
        if index == len(copies):
            copies.append(torch.empty_like(t, requires_grad=False))
        elif not _fits(t, copies[index]):
            copies[index] = torch.empty_like(t, requires_grad=False)
    _copy(copies, tensors)
    return copies


def _fits(t: Tensor, c: Tensor) -> bool:
    return t.dtype is c.dtype and t.shape == c.shape and t.device == c.device


def are_plain(tensors: list[Tensor]) -> bool:
    """Tell whether foreach knows them: subclasses, such as FSDP's sharded tensors, it does not."""
    return all(type(t) in (Tensor, torch.nn.Parameter) for t in tensors)


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
        return {key: _kept(item, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_kept(item, tensors) for item in value)
    return copy.deepcopy(value)
