"""What a module remembers in plain attributes: counters, lists of losses, sums."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor, nn

_TORCHS_OWN = frozenset(vars(nn.Module()))  # parameters, buffers, submodules, hooks


class Attributes:
    """The attributes of a module as they are now, to be put back.

    Tensors, lists, dicts, sets and deques are put back with what is in them, one level deep. Of any
    other object only which one it was: what it changes inside stays changed. Parameters, buffers
    and submodules are none of these attributes.

    Example:
        >>> module = nn.Module()
        >>> module.counter, module.losses = 0, []
        >>> before = Attributes(module)
        >>> module.counter += 1
        >>> module.losses.append(0.5)
        >>> before.restore()
        >>> module.counter, module.losses
        (0, [])
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._values = {k: v for k, v in vars(module).items() if k not in _TORCHS_OWN}
        self._contents = [
            (value, _contents(value))
            for value in self._values.values()
            if isinstance(value, Tensor | list | dict | set | deque)
        ]

    def restore(self) -> None:
        """Put them back, and remove those that are new."""
        present = vars(self._module)
        for name in present.keys() - self._values.keys() - _TORCHS_OWN:
            del present[name]
        present.update(self._values)
        for value, contents in self._contents:
            _put_back(value, contents)


def _contents(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value._version, value.detach().clone()
    return dict(value) if isinstance(value, dict) else list(value)


def _put_back(value: Any, contents: Any) -> None:
    if isinstance(value, Tensor):
        version, numbers = contents
        if value._version != version:  # one that nobody wrote into may be part of a graph
            with torch.no_grad():
                value.copy_(numbers)
        return
    value.clear()
    if isinstance(value, dict):
        for key, item in contents.items():  # not update: a Counter would add
            value[key] = item
    elif isinstance(value, set):
        value.update(contents)
    else:
        value.extend(contents)
