"""Which bases can be wrapped and which settings they take."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from annealtune.annealing import Neighborhood, Setting, grid

# Unusually large rates belong into H: the accept test discards them where they do harm (Section 3).
_RATE_MULTIPLES = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)


def check_base(owner: str, base: Any) -> None:
    """Check that a step of the base can be tried and undone.

    Raises:
        TypeError: if it is no optimizer, or its step needs a closure of its own.
        ValueError: if it maximizes.
    """
    if not isinstance(base, Optimizer):
        raise TypeError(
            f"{owner}(base=...) must be a torch.optim.Optimizer, got {base!r}; "
            "construct it first, for example torch.optim.SGD(model.parameters(), lr=0.1)"
        )
    closure = inspect.signature(type(base).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise TypeError(
            f"{owner}(base=...) must be an optimizer whose step needs no closure, got "
            f"{type(base).__name__}: it evaluates the loss itself, several times a step"
        )
    for group in base.param_groups:
        if group.get("maximize"):
            raise ValueError(
                f"{owner}(base=...) must minimize, got {type(base).__name__} with maximize=True; "
                "negate the loss instead"
            )


def check_neighborhood(owner: str, neighborhood: Any, base: Optimizer) -> Neighborhood:
    """Return H without the settings that the base's own constructor refuses.

    Args:
        owner: name of the wrapping class, for messages.
        neighborhood: H, any iterable of mappings, or None to derive it from the base's rate.
        base: the optimizer that will take the settings.

    Raises:
        TypeError: if it is no collection of settings.
        ValueError: if it names an option that the base does not have, or nothing is left of it.
    """
    if neighborhood is None:
        neighborhood = _around_the_base_rate(owner, base)
    elif not isinstance(neighborhood, Neighborhood):
        try:
            neighborhood = Neighborhood(neighborhood)
        except TypeError as error:
            raise TypeError(
                f"{owner}(neighborhood=...) must be a Neighborhood such as grid(lr=[0.1, 0.01]), "
                f"got {neighborhood!r}: {error}"
            ) from None
    known = base.param_groups[0].keys() - {"params", "param_names", "initial_lr"}
    for option in neighborhood.options:
        if option not in known:
            raise ValueError(
                f"{owner}(neighborhood=...) must name options of {type(base).__name__}, got "
                f"{option!r}; it has {', '.join(sorted(known))}"
            )
    taken: list[Setting] = []
    dropped: list[Setting] = list(neighborhood.dropped)
    if _refusal(base, {}) is None:
        for setting in neighborhood:
            (taken if _refusal(base, setting) is None else dropped).append(setting)
    else:  # a constructor that cannot be called with its own defaults has no say
        taken = list(neighborhood)
    return Neighborhood(taken, dropped=dropped)


def refuse_schedulers(owner: str, neighborhood: Neighborhood, base: Optimizer) -> None:
    """Refuse a learning-rate scheduler beside a neighborhood that holds the rate.

    A chainable scheduler multiplies whatever rate it finds: it would compound on random picks.

    Raises:
        ValueError: if a scheduler has left its mark in a group.
    """
    if "lr" in neighborhood.options and any("initial_lr" in group for group in base.param_groups):
        raise ValueError(
            f"{owner}: the neighborhood must not hold lr while a learning-rate scheduler is "
            "attached (a group has 'initial_lr'): each would overwrite the other. Take the "
            "scheduler away, or leave lr out of the neighborhood"
        )


def check_gradients(owner: str, parameters: Iterable[Tensor]) -> None:
    """Check that there is a gradient and that it can be undone.

    Raises:
        TypeError: if a gradient is sparse.
        ValueError: if no parameter has one.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        raise ValueError(
            f"{owner}.step: at least one parameter must have a gradient, got none; call "
            "loss.backward() first, or pass a closure"
        )
    if any(gradient.is_sparse for gradient in gradients):
        raise TypeError(
            f"{owner}.step: gradients must be dense, got a sparse one; build the embedding with "
            "sparse=False"
        )


def _refusal(base: Optimizer, options: Any) -> Exception | None:
    """Return what the base's constructor says against these options, None if it takes them."""
    accepted = inspect.signature(type(base).__init__).parameters
    arguments = {key: value for key, value in base.defaults.items() if key in accepted}
    scratch = torch.nn.Parameter(torch.zeros(1))
    try:
        type(base)([scratch], **{**arguments, **options})
    except (ValueError, TypeError) as error:
        return error
    return None


def _around_the_base_rate(owner: str, base: Optimizer) -> Neighborhood:
    rates = {float(group["lr"]) for group in base.param_groups if "lr" in group}
    if len(rates) != 1 or 0.0 in rates:
        raise ValueError(
            f"{owner}(neighborhood=...) must be given where the groups of the base do not share "
            f"one positive learning rate, got rates {sorted(rates)}"
        )
    rate = rates.pop()
    return grid(lr=[multiple * rate for multiple in _RATE_MULTIPLES])
