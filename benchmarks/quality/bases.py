"""The optimizers that are tuned, and the rates that are tried for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from .tasks.task import Task

Groups = list[dict[str, Any]]

# What a group is built with; only the ratios between groups are kept.
_SOME_RATE = 0.01

BASES: dict[str, Callable[[Groups], Optimizer]] = {
    "adamw": lambda groups: AdamW(groups, fused=True),  # the same, sooner
    "sgd": lambda groups: SGD(groups, momentum=0.9),
}


def half_decades(lowest: float, highest: float) -> tuple[float, ...]:
    """Return 1 and 3 of every power of ten between two of them, both included."""
    first, last = round(math.log10(lowest)), round(math.log10(highest))
    rates = [digit * 10.0**power for power in range(first, last + 1) for digit in (1, 3)]
    return tuple(float(f"{rate:g}") for rate in rates[:-1])


GRIDS = {
    "adamw": half_decades(1e-5, 1e-1),
    "sgd": half_decades(1e-4, 1.0),
}


def groups_of(task: Task, network: nn.Module) -> Groups:
    """Return the groups of a task with rates in the right ratio."""
    return [
        {"params": parameters, "lr": _SOME_RATE * multiple}
        for parameters, multiple in task.groups(network)
    ]


def base_of(name: str, task: Task, network: nn.Module) -> Optimizer:
    return BASES[name](groups_of(task, network))


def write_rate(optimizer: Optimizer, rate: float, task: Task, network: nn.Module) -> None:
    for group, (_, multiple) in zip(optimizer.param_groups, task.groups(network), strict=True):
        group["lr"] = rate * multiple


def has_batch_norm(network: nn.Module) -> bool:
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules())
