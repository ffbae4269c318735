"""Which bases can be wrapped and which settings they take."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from annealtune.annealing import Neighborhood, grid
from annealtune.optim.gradient import active_scaler
from annealtune.optim.wrapper import OptimizerWrapper


def check_base(owner: str, base: Any, *, may_maximize: bool = False) -> None:
    """Check that a step of the base can be tried and undone.

    Args:
        owner: name of the wrapping class, for messages.
        base: the optimizer.
        may_maximize: whether the wrapper can follow a base that maximizes.

    Raises:
        TypeError: if it is no optimizer, or its step needs a closure of its own.
        ValueError: if it maximizes.
    """
    if not isinstance(base, Optimizer):
        raise TypeError(
            f"{owner}(base=...) must be a torch.optim.Optimizer, got {base!r}; "
            "construct it first, for example torch.optim.SGD(model.parameters(), lr=0.1)"
        )
    if isinstance(base, OptimizerWrapper):
        raise TypeError(
            f"{owner}(base=...) must be an optimizer that nobody else anneals, got {base!r}"
        )
    closure = inspect.signature(type(base).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise TypeError(
            f"{owner}(base=...) must be an optimizer whose step needs no closure, got "
            f"{type(base).__name__}: it evaluates the loss itself, several times a step"
        )
    if not any(group["params"] for group in base.param_groups):
        raise ValueError(f"{owner}(base=...) must have parameters to train, got none")
    if not may_maximize:
        for group in base.param_groups:
            check_group(owner, group)


def direction(owner: str, base: Optimizer) -> float:
    """Return 1 where the base minimizes, -1 where it maximizes.

    Raises:
        ValueError: if its groups do not agree.
    """
    directions = {bool(group.get("maximize", False)) for group in base.param_groups}
    if len(directions) > 1:
        raise ValueError(
            f"{owner}(base=...): all groups must minimize or all must maximize, got both"
        )
    return -1.0 if True in directions else 1.0


def check_group(owner: str, group: Any) -> None:
    """Check that a parameter group can be annealed.

    Raises:
        ValueError: if it maximizes: the accept test minimizes.
    """
    if isinstance(group, Mapping) and group.get("maximize"):
        raise ValueError(
            f"{owner}: every parameter group must minimize, got one with maximize=True; negate "
            "the loss instead"
        )


def as_neighborhood(owner: str, neighborhood: Any) -> Neighborhood:
    """Return H with plain numbers, which a checkpoint can hold, also where numpy's were given.

    Args:
        owner: name of the optimizer's class, for messages.
        neighborhood: H, its settings one by one, or for each option the values to choose from.

    Raises:
        TypeError: if it is no collection of settings.
        ValueError: as `Neighborhood` does.
    """
    if not isinstance(neighborhood, Neighborhood):
        try:
            if isinstance(neighborhood, Mapping):
                neighborhood = grid(**neighborhood)
            else:
                neighborhood = Neighborhood(neighborhood)
        except TypeError as error:
            raise TypeError(
                f"{owner}(neighborhood=...) must be a Neighborhood such as grid(lr=[0.1, 0.01]), "
                f"got {neighborhood!r}: {error}"
            ) from None
    settings = ({name: plain(h[name]) for name in h} for h in neighborhood)
    return Neighborhood(settings, dropped=neighborhood.dropped)


def refuse_scaled_closure(owner: str) -> None:
    """Refuse a closure that comes through a GradScaler, which does not unscale its gradients.

    The scaler checks gradients, then calls ``step``; a closure makes new ones, larger by its
    scale. Every step would be rejected and nobody told.

    Raises:
        TypeError: if an active GradScaler is among the callers.
    """
    if active_scaler() is not None:
        raise TypeError(
            f"{owner}.step must not be given a closure by a GradScaler: the gradients it makes "
            "would not be unscaled; call scaler.step(opt, loss=loss, probe=fn)"
        )


def check_gradients(owner: str, base: Optimizer) -> None:
    """Check that there is a gradient and that it can be undone.

    Raises:
        TypeError: if a gradient is sparse.
        ValueError: if no parameter has one.
    """
    parameters = [p for group in base.param_groups for p in group["params"]]
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        raise ValueError(
            f"{owner}.step: at least one parameter must have a gradient, got none; call "
            "loss.backward() first, or pass a closure"
        )
    if any(gradient.layout != torch.strided for gradient in gradients):
        raise TypeError(
            f"{owner}.step: gradients must be dense, got a sparse one; build the embedding with "
            "sparse=False"
        )


def plain(value: Any) -> Any:
    """Turn numpy's numbers and tensors of one element into Python's numbers."""
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    return value.item() if hasattr(value, "item") else value
