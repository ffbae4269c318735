"""Which bases can be wrapped and which settings they take."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from annealtune.annealing import Neighborhood, Setting, grid
from annealtune.optim.wrapper import OptimizerWrapper

# The values of some options in one of the base's groups.
GroupOptions = tuple[dict[str, Any], dict[str, Any]]

# What a group holds besides options, and the one that the accept test cannot follow.
_NO_OPTIONS = {"params", "param_names", "initial_lr", "maximize"}
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
    for group in base.param_groups:
        check_group(owner, group)


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

    Raises:
        TypeError: if it is no collection of settings.
        ValueError: as `Neighborhood` does.
    """
    if not isinstance(neighborhood, Neighborhood):
        try:
            neighborhood = Neighborhood(neighborhood)
        except TypeError as error:
            raise TypeError(
                f"{owner}(neighborhood=...) must be a Neighborhood such as grid(lr=[0.1, 0.01]), "
                f"got {neighborhood!r}: {error}"
            ) from None
    settings = ({name: _plain(h[name]) for name in h} for h in neighborhood)
    return Neighborhood(settings, dropped=neighborhood.dropped)


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
    neighborhood = as_neighborhood(owner, neighborhood)
    known = set.intersection(*(set(group) for group in base.param_groups)) - _NO_OPTIONS
    for option in neighborhood.options:
        if option not in known:
            raise ValueError(
                f"{owner}(neighborhood=...) must name options of {type(base).__name__}, got "
                f"{option!r}; it has {', '.join(sorted(known))}"
            )
    taken: list[Setting] = []
    dropped: list[Setting] = list(neighborhood.dropped)
    for setting in neighborhood:
        refused = any(_refuses(base, group, setting) for group in base.param_groups)
        (dropped if refused else taken).append(setting)
    return Neighborhood(taken, dropped=dropped)


def options_in_groups(neighborhood: Neighborhood, base: Optimizer) -> list[GroupOptions]:
    """Return the present value of every option of H, group by group."""
    return [
        (group, {option: _plain(group[option]) for option in neighborhood.options})
        for group in base.param_groups
    ]


def refuse_schedulers(
    owner: str, neighborhood: Neighborhood, base: Optimizer, left: Iterable[GroupOptions] = ()
) -> None:
    """Refuse whoever else writes into an option that is picked anew at every step.

    A chainable scheduler multiplies whatever rate it finds: it would compound on random picks.

    Args:
        owner: name of the wrapping class, for messages.
        neighborhood: H.
        base: the optimizer that takes the settings.
        left: the options as the last step left them.

    Raises:
        ValueError: if a scheduler has left its mark in a group, or an option has changed.
    """
    if "lr" in neighborhood.options and any("initial_lr" in group for group in base.param_groups):
        raise ValueError(
            f"{owner}: the neighborhood must not hold lr while a learning-rate scheduler is "
            "attached (a group has 'initial_lr'): each would overwrite the other. Take the "
            "scheduler away, or leave lr out of the neighborhood"
        )
    present = options_in_groups(neighborhood, base)
    for (group, now), (same, then) in zip(present, left, strict=False):
        changed = [option for option in then if now[option] != then[option]]
        if changed and group is same:
            raise ValueError(
                f"{owner}: {changed[0]} is in the neighborhood, so nobody else must write it, got "
                f"{now[changed[0]]!r} where the last step left {then[changed[0]]!r}. Take the "
                f"scheduler away, or leave {changed[0]} out of the neighborhood"
            )


def refuse_scaled_closure(owner: str) -> None:
    """Refuse a closure that comes through a GradScaler, which does not unscale its gradients.

    The scaler checks gradients, then calls ``step``; a closure makes new ones, larger by its
    scale. Every step would be rejected and nobody told.

    Raises:
        TypeError: if an active GradScaler is among the callers.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "torch.amp.grad_scaler":
            if frame.f_locals["self"].is_enabled():
                raise TypeError(
                    f"{owner}.step must not be given a closure by a GradScaler: the gradients it "
                    "makes would not be unscaled; call scaler.step(opt, loss=loss, probe=fn)"
                )
            return


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
    if any(gradient.layout != torch.strided for gradient in gradients):
        raise TypeError(
            f"{owner}.step: gradients must be dense, got a sparse one; build the embedding with "
            "sparse=False"
        )


def _refuses(base: Optimizer, group: dict[str, Any], setting: Setting) -> bool:
    """Tell whether the base's constructor refuses a setting beside a group's other options."""
    # A constructor that does not even take what the group has now has no say.
    return not _constructs(base, group, setting) and _constructs(base, group, {})


def _constructs(base: Optimizer, group: dict[str, Any], setting: Mapping[str, Any]) -> bool:
    accepted = inspect.signature(type(base).__init__).parameters
    options = {key: value for key, value in {**base.defaults, **group}.items() if key in accepted}
    scratch = torch.nn.Parameter(_small(group["params"][0]) if group["params"] else torch.zeros(1))
    try:
        type(base)(**{**options, **setting, "params": [scratch]})
    except (ValueError, TypeError, RuntimeError, AssertionError):
        return False
    return True


def _small(parameter: Tensor) -> Tensor:
    """Return one element of the same kind: some bases take matrices only."""
    if torch.nn.parameter.is_lazy(parameter):
        return torch.zeros(1)
    return torch.zeros((1,) * parameter.ndim, dtype=parameter.dtype, device=parameter.device)


def _plain(value: Any) -> Any:
    """Turn numpy's numbers and tensors of one element into Python's numbers."""
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    return value.item() if hasattr(value, "item") else value


def _around_the_base_rate(owner: str, base: Optimizer) -> Neighborhood:
    rates = {float(group["lr"]) for group in base.param_groups if "lr" in group}
    if len(rates) != 1 or 0.0 in rates:
        raise ValueError(
            f"{owner}(neighborhood=...) must be given where the groups of the base do not share "
            f"one positive learning rate, got rates {sorted(rates)}"
        )
    rate = rates.pop()
    return grid(lr=[multiple * rate for multiple in _RATE_MULTIPLES])
