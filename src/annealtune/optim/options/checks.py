"""Which bases can be wrapped and which settings they take."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

from annealtune.annealing import Neighborhood, grid
from annealtune.optim.wrapper import OptimizerWrapper


def check_base(owner: str, base: Any, *, may_maximize: bool = False) -> None:
    """Check that a step of the base can be tried and undone.

    Raises:
        TypeError: if it is no optimizer, or its step needs a closure of its own or the graph of
            the gradients.
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
    if getattr(base, "is_second_order", False):  # timm's and other people's mark of such a one
        raise TypeError(
            f"{owner}(base=...) must be an optimizer that makes its step from gradients, got "
            f"{type(base).__name__}: it differentiates them again (backward(create_graph=True))"
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

    It may be given as settings one by one, or for each option as the values to choose from.

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


def plain(value: Any) -> Any:
    """Turn numpy's numbers and tensors of one element into Python's numbers."""
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    return value.item() if hasattr(value, "item") else value
