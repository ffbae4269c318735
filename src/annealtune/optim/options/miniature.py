"""A base in miniature, to find out what the real one takes and which state it makes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

_HALF = torch.finfo(torch.float16)  # no kind of weights has a smaller range


def refuses(base: Optimizer, group: dict[str, Any], options: Mapping[str, Any]) -> bool:
    """Tell whether the base's constructor refuses options beside a group's other ones.

    Or its step: a rate that the kind of the weights cannot hold, such as 1e5 in float16.
    """
    miniature = _miniature(base, group, options)
    if miniature is None:
        # A constructor that does not even take what the group has now has no say.
        return _miniature(base, group, {}) is not None
    if float(options.get("lr", 0.0)) <= _HALF.max:
        return False
    # torch does not check what it writes into a tensor of one element.
    miniature = _miniature(base, group, options, size=2)
    return miniature is not None and not _steps(miniature)


@torch.no_grad()
def make_late_state(base: Optimizer) -> bool:
    """Make the state that the present options need and a parameter's first step did not make.

    RMSprop (momentum, centered) and Adam (amsgrad) make their buffers in the first step of a
    parameter or never. Here they begin as they would have there; what is kept already stays.

    Returns:
        Whether there was something to make.
    """
    made = False
    for group in base.param_groups:
        miniature = _miniature(base, group, {})
        if miniature is None:
            continue
        (scratch,) = miniature.param_groups[0]["params"]
        scratch.grad = torch.zeros_like(scratch)
        miniature.step()  # along no gradient, so that every buffer is as it begins
        for p in filter(base.state.get, group["params"]):  # those that have made a step
            for key, value in miniature.state[scratch].items():
                if key not in base.state[p]:
                    base.state[p][key] = _as_large_as(p, value, scratch)
                    made = True
    return made


@torch.no_grad()
def _steps(miniature: Optimizer) -> bool:
    (scratch,) = miniature.param_groups[0]["params"]
    scratch.grad = torch.zeros_like(scratch)
    try:
        miniature.step()
    except RuntimeError:
        return False
    return True


def _as_large_as(parameter: Tensor, value: Any, scratch: Tensor) -> Any:
    """Return state of the scratch parameter for the real one: an element stands for all."""
    if isinstance(value, Tensor) and value.shape == scratch.shape:
        return torch.full_like(parameter, value.item(), dtype=value.dtype)
    return copy.deepcopy(value)


def _miniature(
    base: Optimizer, group: dict[str, Any], options: Mapping[str, Any], size: int = 1
) -> Optimizer | None:
    accepted = inspect.signature(type(base).__init__).parameters
    present = {key: value for key, value in {**base.defaults, **group}.items() if key in accepted}
    params = group["params"]
    scratch = torch.nn.Parameter(_small(params[0], size) if params else torch.zeros(size))
    try:
        return type(base)(**{**present, **options, "params": [scratch]})
    except (ValueError, TypeError, RuntimeError, AssertionError):
        return None


def _small(parameter: Tensor, size: int) -> Tensor:
    """Return zeros of the same kind and as many dimensions: some bases take matrices only."""
    if torch.nn.parameter.is_lazy(parameter):
        return torch.zeros(size)
    return torch.zeros((size,) * parameter.ndim, dtype=parameter.dtype, device=parameter.device)
