"""What a base keeps elsewhere than in its state and groups, where a rejection cannot undo it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

# What a snapshot restores; the defaults are read by nobody after the construction.
_RESTORED = ("param_groups", "state", "defaults")


class StateOutside:
    """The numbers and tensors among the attributes of an optimizer, as they are now.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> StateOutside(torch.optim.SGD([weight])).refuse_changes("EmbeddedTuner")
    """

    def __init__(self, base: Optimizer) -> None:
        self._base = base
        self._before = _numbers_of(base)

    def refuse_changes(self, owner: str) -> None:
        """Refuse a base whose step has changed one of them."""
        now = _numbers_of(self._base)
        for name in {**self._before, **now}:
            if not _are_equal(self._before.get(name), now.get(name)):
                raise TypeError(
                    f"{owner}(base=...) must keep what its step changes in its state and its "
                    "parameter groups, or its steps could not be undone, got "
                    f"{type(self._base).__name__}, which keeps {name} elsewhere; take another "
                    "optimizer, or the one inside it"
                )


def _numbers_of(base: Optimizer) -> dict[str, Any]:
    found: dict[str, Any] = {}
    _collect("", vars(base), found, {id(getattr(base, name)) for name in _RESTORED})
    return found


def _collect(name: str, value: Any, found: dict[str, Any], seen: set[int]) -> None:
    """Walk through containers and optimizers; flags that something was said once do not count."""
    if isinstance(value, Tensor):
        found[name] = value.detach().clone()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found[name] = value
    elif isinstance(value, dict | list | tuple | Optimizer) and id(value) not in seen:
        seen.add(id(value))
        inside = vars(value) if isinstance(value, Optimizer) else value
        items = inside.items() if isinstance(inside, dict) else enumerate(inside)
        for number, (key, item) in enumerate(items):
            part = key if isinstance(key, str | int) else number
            _collect(f"{name}.{part}" if name else str(part), item, found, seen)


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    return repr(one) == repr(other)  # NaN is NaN
