"""The optimizers that are tuned, and the rates that are tried for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import SGD, Adafactor, Adagrad, AdamW, Optimizer, RMSprop

from .tasks.task import Task

Groups = list[dict[str, Any]]

# What a group is built with; only the ratios between groups are kept.
_SOME_RATE = 0.01


def _lion(groups: Groups) -> Optimizer:
    from pytorch_optimizer import Lion

    return Lion(groups)


def _muon(groups: Groups) -> Optimizer:
    """Return Muon for matrices and convolutions, AdamW for everything else, in one optimizer.

    Its authors leave embeddings and the last layer to AdamW; here embeddings are no exception, and
    the last layer is the last of the matrices if there are several. The size of Muon's steps is
    matched to that of AdamW's, so that one rate suits both: Liu et al., *Muon is scalable for LLM
    training* (2025).
    """
    from pytorch_optimizer import Muon

    matrices = [p for group in groups for p in group["params"] if p.ndim >= 2]
    hidden = {id(p) for p in (matrices[:-1] or matrices)}
    parts = [
        {
            "params": [p for p in group["params"] if (id(p) in hidden) == use_muon],
            "lr": group["lr"],
            "weight_decay": 0.01,
            "use_muon": use_muon,
        }
        for group in groups
        for use_muon in (True, False)
    ]
    return Muon([part for part in parts if part["params"]], use_adjusted_lr=True)


BASES: dict[str, Callable[[Groups], Optimizer]] = {
    "adamw": lambda groups: AdamW(groups, fused=True),  # the same, sooner
    "sgd": lambda groups: SGD(groups, momentum=0.9),
    "adafactor": Adafactor,
    "adagrad": Adagrad,
    "lion": _lion,
    "muon": _muon,
    "rmsprop": RMSprop,
}


def half_decades(lowest: float, highest: float) -> tuple[float, ...]:
    """Return 1 and 3 of every power of ten between two of them, both included."""
    first, last = round(math.log10(lowest)), round(math.log10(highest))
    rates = [digit * 10.0**power for power in range(first, last + 1) for digit in (1, 3)]
    return tuple(float(f"{rate:g}") for rate in rates[:-1])


# The rates that may be tried. Of AdamW and SGD, whose grids are run on three seeds, those that
# come first; the others only beyond an end that wins. Of SGD's these reach far down: on some tasks
# all rates above are dead alike, and the best of these would be no end.
GRIDS = {
    "adamw": half_decades(1e-6, 1.0),
    "sgd": half_decades(1e-5, 100.0),
    "adafactor": half_decades(1e-4, 1.0),
    "adagrad": half_decades(1e-4, 1.0),
    "lion": half_decades(1e-6, 1e-2),
    "muon": half_decades(1e-5, 1e-1),
    "rmsprop": half_decades(1e-5, 1e-1),
}
TRIED_FIRST = {"adamw": (1e-4, 1e-1), "sgd": (1e-5, 1.0)}


def groups_of(task: Task, network: nn.Module) -> Groups:
    """Return the groups of a task with rates in the right ratio."""
    return [
        {"params": parameters, "lr": _SOME_RATE * multiple}
        for parameters, multiple in task.groups(network)
    ]


def base_of(name: str, task: Task, network: nn.Module) -> Optimizer:
    return BASES[name](groups_of(task, network))


def write_rate(optimizer: Optimizer, rate: float, task: Task, network: nn.Module) -> None:
    multiples = {id(p): multiple for ps, multiple in task.groups(network) for p in ps}
    for group in optimizer.param_groups:
        group["lr"] = rate * multiples[id(group["params"][0])]


def has_batch_norm(network: nn.Module) -> bool:
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules())
