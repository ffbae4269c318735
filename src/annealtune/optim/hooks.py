"""Functions that are called at every step of a base, and what they remember between steps."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

TORCHS_OWN = frozenset(vars(nn.Module()))  # parameters, buffers, submodules, hooks
# Calls in which a hook is watched, those of a race among them.
_WATCHED = 200


class Hook:
    """A function that is called at every step of the base; what it remembers belongs to the run.

    That is what one of its first calls changes: attributes of the object that it is, or is a method
    of, and variables of the function around it or of its file, as far as they are numbers, tensors,
    or containers of them.

    Example:
        >>> norms = []
        >>> hook = Hook(lambda: norms.append(1.0))
        >>> before = hook.memory()
        >>> hook()
        >>> hook.remember(before)
        >>> norms
        []
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._calls = 0
        # Where it remembers something, as far as that is known: dicts with a key, or cells.
        self._places: dict[tuple[int, str], Any] = {}
        self._first: list[Any] = []  # what it knew there before the first change

    def __call__(self, *_: Any) -> None:
        """Call the function, at first finding out what it remembers."""
        self._calls += 1
        if self._calls > _WATCHED:
            self._function()
            return
        before = {key: copied(_value(o, key[1])) for key, o in self._candidates().items()}
        self._function()
        for key, o in self._candidates().items():
            then = before.get(key, _ABSENT)
            if key not in self._places and not same(then, _value(o, key[1])):
                self._places[key] = o
                self._first.append(then)

    def memory(self) -> list[Any]:
        """Return what it remembers."""
        return [_value(o, name) for (_, name), o in self._places.items()]

    def remember(self, memory: list[Any]) -> None:
        """Remember this; what is not in it, for it was not known then, is as it was at first."""
        memory = memory + copied(self._first[len(memory) :])
        for ((_, name), o), value in zip(self._places.items(), memory, strict=True):
            if not isinstance(o, dict):
                o.cell_contents = value
            elif value is _ABSENT:
                o.pop(name, None)
            else:
                o[name] = value

    def _candidates(self) -> dict[tuple[int, str], Any]:
        """Return where it may: attributes, variables of the function around it, global ones."""
        function = getattr(self._function, "__func__", self._function)
        holder = getattr(self._function, "__self__", self._function)
        code = getattr(function, "__code__", None)
        found = [(cell, "") for cell in getattr(function, "__closure__", None) or ()]
        found += [(function.__globals__, name) for name in code.co_names] if code else []
        if not isinstance(holder, FunctionType | Optimizer | type):
            own = getattr(holder, "__dict__", {})
            found += [(own, name) for name in own if name not in TORCHS_OWN]
        places = [(o, name) for o, name in found if isinstance(_value(o, name), REMEMBERED)]
        return {(id(o), name): o for o, name in places}


def _value(place: Any, name: str) -> Any:
    if isinstance(place, dict):
        return place.get(name, _ABSENT)
    try:
        return place.cell_contents
    except ValueError:  # a variable that is not assigned yet
        return _ABSENT


_ABSENT = object()
_COMPARED = (bool, int, float, str, set)
_IN_A_ROW = (list, tuple, deque)
REMEMBERED = (bool, int, float, type(None), Tensor, dict, list, set, deque)


def copied(value: Any) -> Any:
    """Copy containers and the tensors in them; parameters and other objects are what they are."""
    return tree_map(_copied_leaf, value)


def _copied_leaf(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf if isinstance(leaf, nn.Parameter) else leaf.detach().clone()
    return copy.copy(leaf) if isinstance(leaf, REMEMBERED) else leaf


def same(one: Any, other: Any) -> bool:
    """Compare numbers, tensors and containers of them; other objects by which one it is."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, _IN_A_ROW) and isinstance(other, _IN_A_ROW):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other or (isinstance(one, _COMPARED) and bool(one == other))
