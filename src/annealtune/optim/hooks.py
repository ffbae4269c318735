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

TORCHS_OWN = frozenset(vars(nn.Module()))  # parameters, buffers, submodules, hooks


class Hook:
    """A function that is called at every step of the base; what it remembers belongs to the run.

    That is what its first call changes, and containers that are empty before it: attributes of the
    object that it is, or is a method of, and variables of the function around it or of its file, as
    far as they are numbers, tensors, or containers of them.

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
        # Where it remembers something, once that is known: dicts with a key, or cells.
        self._places: list[tuple[Any, str]] | None = None
        self._first: list[Any] = []  # what it knew before its first call

    def __call__(self, *_: Any) -> None:
        """Call the function; the first time find out what it remembers."""
        if self._places is not None:
            self._function()
            return
        before = {(id(o), name): copied(_value(o, name)) for o, name in self._candidates()}
        self._function()
        found = []
        for o, name in self._candidates():
            then = before.get((id(o), name), _ABSENT)
            is_empty = isinstance(then, dict | list | set | deque) and not then
            may_fill = is_empty and self._mentions(o, name)  # later
            if may_fill or not same(then, _value(o, name)):
                found.append((o, name))
                self._first.append(then)
        self._places = found

    def memory(self) -> list[Any]:
        """Return what it remembers; nothing before its first call."""
        return [_value(o, name) for o, name in self._places or ()]

    def remember(self, memory: list[Any]) -> None:
        """Remember this, or nothing of what it was called for."""
        memory = memory or copied(self._first)
        for (o, name), value in zip(self._places or (), memory, strict=True):
            if not isinstance(o, dict):
                o.cell_contents = value
            elif value is _ABSENT:
                o.pop(name, None)
            else:
                o[name] = value

    def _mentions(self, place: Any, name: str) -> bool:
        """Tell whether it is its own: the object of a method has lists for other things too."""
        holder = getattr(self._function, "__self__", None)
        if holder is None or place is not getattr(holder, "__dict__", None):
            return True
        return name in getattr(self._function, "__func__", self._function).__code__.co_names

    def _candidates(self) -> list[tuple[Any, str]]:
        """Return where it may: attributes, variables of the function around it, global ones."""
        function = getattr(self._function, "__func__", self._function)
        holder = getattr(self._function, "__self__", self._function)
        code = getattr(function, "__code__", None)
        found = [(cell, "") for cell in getattr(function, "__closure__", None) or ()]
        found += [(function.__globals__, name) for name in code.co_names] if code else []
        if not isinstance(holder, FunctionType | Optimizer):
            own = getattr(holder, "__dict__", {})
            found += [(own, name) for name in own if name not in TORCHS_OWN]
        return [(o, name) for o, name in found if isinstance(_value(o, name), _REMEMBERED)]


def _value(place: Any, name: str) -> Any:
    if isinstance(place, dict):
        return place.get(name, _ABSENT)
    try:
        return place.cell_contents
    except ValueError:  # a variable that is not assigned yet
        return _ABSENT


_ABSENT = object()
_COMPARED = (bool, int, float, str, tuple, set)
_REMEMBERED = (bool, int, float, type(None), Tensor, dict, list, set, deque)


def copied(value: Any) -> Any:
    """Copy containers and the tensors in them; parameters and other objects are what they are."""
    if isinstance(value, Tensor):
        return value if isinstance(value, nn.Parameter) else value.detach().clone()
    if isinstance(value, dict):
        made = copy.copy(value)
        for key, item in value.items():
            made[key] = copied(item)
        return made
    if isinstance(value, deque):
        return deque(map(copied, value), value.maxlen)
    return type(value)(map(copied, value)) if type(value) in (list, tuple, set) else value


def same(one: Any, other: Any) -> bool:
    """Compare numbers, tensors and containers of them; other objects by which one it is."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | deque) and isinstance(other, list | deque):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other or (isinstance(one, _COMPARED) and bool(one == other))


def hooks_of(base: Optimizer) -> list[Hook]:
    """Return the functions that a tuner has hooked on to the steps of its base."""
    before, after = base._optimizer_step_pre_hooks, base._optimizer_step_post_hooks
    hooks: list[Any] = [*before.values(), *after.values()]
    return [hook for hook in hooks if isinstance(hook, Hook)]
