"""The groups of an optimizer, its parameters and their gradients, which are read with one wait."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

_PLAIN = (Tensor, nn.Parameter)


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of all groups, in their order."""
    parameters: list[Tensor] = []
    for group in optimizer.param_groups:
        parameters += group["params"]
    return parameters


def write_setting(base: Optimizer, setting: Mapping[str, Any], multiples: Sequence[float]) -> None:
    """Write a setting into every group, its rate times the multiple of the group."""
    written: set[int] = set()
    for group, multiple in zip(base.param_groups, multiples, strict=True):
        for option, value in setting.items():
            new = value * multiple if option == "lr" else value
            if not isinstance(group[option], Tensor):
                group[option] = new
                continue
            if id(group[option]) in written:  # torch gives all groups one tensor
                group[option] = group[option].clone()
            group[option].fill_(new)
            written.add(id(group[option]))


def highest_rate(parameters: Iterable[Tensor]) -> float:
    """Return the highest rate that torch takes: what the weights' kind cannot hold it refuses."""
    kinds = (p.dtype for p in parameters if p.is_floating_point())
    return min((torch.finfo(kind).max for kind in kinds), default=math.inf)


def gathered(tensor: Tensor) -> Tensor:
    """Return all of a tensor: of one that is sharded, torch reads the part of this process alone.

    All processes must call it together.
    """
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full


def gradients_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the gradients of the parameters that have one."""
    return [p.grad for p in parameters_of(optimizer) if p.grad is not None]


def has_gradient(optimizer: Optimizer) -> bool:
    """Tell whether a gradient is there that is not zero."""
    return any(bool(gathered(_values(g).any())) for g in gradients_of(optimizer))


def gradients_are_finite(optimizer: Optimizer) -> bool:
    """Tell whether no gradient is NaN or infinite: one that overflowed makes no step."""
    return are_finite(map(_values, gradients_of(optimizer)))


def trained_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters that have a gradient.

    Whether they are finite a loss does not always show: a row of an embedding that this minibatch
    does not use, an infinity behind a tanh, and the net is broken all the same.
    """
    found: list[Tensor] = []
    for p in parameters_of(optimizer):
        if p.grad is not None:
            found.append(p)  # noqa: PERF401 - called in every step
    return found


def are_finite(tensors: Iterable[Tensor]) -> bool:
    """Tell whether no element is NaN or infinite.

    Example:
        >>> are_finite([torch.ones(2), torch.tensor([1.0, torch.nan])])
        False
    """
    tensors = list(tensors)
    if all(map(math.isfinite, read(*finite_marks(tensors)))):
        return True
    # The norm of finite elements may be infinite.
    return all(bool(gathered(t.isfinite().all())) for t in tensors)


def finite_marks(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return a number for each device and type that is finite only if all elements there are.

    Nothing waits for a device. Large finite elements may give a number that is not finite.
    """
    plain: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    marks = []
    for t in tensors:
        if type(t) in _PLAIN and t.is_floating_point():  # not every kind of those has a norm
            plain.setdefault((t.device, t.dtype), []).append(t.detach())
        else:
            is_finite = gathered(t.isfinite().all())
            marks.append(torch.where(is_finite, 0.0, math.inf))
    for (_, dtype), group in plain.items():
        # Half precision would overflow early.
        wide = torch.float32 if dtype.itemsize < 4 else dtype
        marks.append(torch.stack(torch._foreach_norm(group, 2, dtype=wide)).sum())
    return marks


def read(*values: Tensor | float) -> list[float]:
    """Return scalars as numbers, after waiting once for every device they lie on.

    Example:
        >>> read(torch.tensor(1.5), 2.0, torch.tensor(0.25, dtype=torch.float64))
        [1.5, 2.0, 0.25]
    """
    found: list[Any] = list(values)
    devices: dict[torch.device, list[int]] = {}
    for place, value in enumerate(values):
        if isinstance(value, Tensor):
            devices.setdefault(value.device, []).append(place)
            found[place] = value.reshape(())
    for places in devices.values():
        # Types are promoted to one that holds each of them exactly.
        numbers = torch.stack(list(map(found.__getitem__, places))).tolist()
        for place, number in zip(places, numbers, strict=True):
            found[place] = number
    return found


def numbers_of(source: str, value: Any) -> list[float]:
    """Return what a score or an objective returned as numbers: one, or several in a row.

    Raises:
        TypeError: if it is something else.

    Example:
        >>> numbers_of("the score", [1, torch.tensor(0.5)])
        [1.0, 0.5]
    """
    values = gathered(value.detach()) if isinstance(value, Tensor) else value
    if getattr(values, "ndim", None) in (0, 1) and hasattr(values, "tolist"):  # numpy's too
        values = values.tolist()
    if isinstance(values, Real) and not isinstance(value, bool):
        return [float(values)]
    if isinstance(values, list | tuple):
        numbers = [v.item() if isinstance(v, Tensor) and v.numel() == 1 else v for v in values]
        if numbers and all(isinstance(number, Real) for number in numbers):
            return [float(number) for number in numbers]
    raise TypeError(f"{source} must return a number, or several in a row, got {value!r}")


def _values(gradient: Tensor) -> Tensor:
    return gradient._values() if gradient.is_sparse else gradient
