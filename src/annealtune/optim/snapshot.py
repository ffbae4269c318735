"""Undo by copy: weights and optimizer state, bit for bit.

Undoing a step by arithmetic (``w += lr * grad``) changes about half of all float32 weights, and
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
    of the optimizer's state.

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
        self._groups: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._state: dict[Any, Any] = {}

    @torch.no_grad()
    def take(self, *, gradients: bool = False) -> None:
        """Copy the present state; ``gradients`` are included for a base that writes into them."""
        tensors: list[Tensor] = []
        self._groups = []
        for group in self._optimizer.param_groups:
            options = {key: value for key, value in group.items() if key != "params"}
            self._groups.append((group, _kept(options, tensors)))
            for p in group["params"]:
                if p.requires_grad or p.grad is not None:
                    tensors.append(p)
                if gradients and p.grad is not None:
                    tensors.append(p.grad)
        self._state = {key: _kept(entry, tensors) for key, entry in self._optimizer.state.items()}
        fits = len(tensors) == len(self._copies) and all(
            t.shape == c.shape and t.dtype == c.dtype and t.device == c.device
            for t, c in zip(tensors, self._copies, strict=True)
        )
        if not fits:
            self._copies = [torch.empty_like(t, requires_grad=False) for t in tensors]
        self._tensors = tensors
        torch._foreach_copy_(self._copies, tensors)

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back in place; what was not there when it was taken is removed."""
        torch._foreach_copy_(self._tensors, self._copies)
        for group, options in self._groups:
            for key in group.keys() - options.keys() - {"params"}:
                del group[key]
            group.update(options)
        state: dict[Any, Any] = self._optimizer.state
        for key in [key for key in state if key not in self._state]:
            del state[key]
        for key, entry in self._state.items():
            if isinstance(entry, dict) and isinstance(state.get(key), dict):
                state[key].clear()
                state[key].update(entry)
            else:
                state[key] = entry


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
