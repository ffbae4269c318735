"""What a setting writes, and which bases and settings can be tuned.

`GroupRates` keeps the ratios between the learning rates of groups. The rest checks a base and finds
out, on a copy in miniature, which options it takes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from annealtune.annealing import Neighborhood, Setting, grid
from annealtune.optim.context import Part
from annealtune.optim.parameters import highest_rate, write_setting
from annealtune.optim.wrapper import OptimizerWrapper

# Ways to write H.
Choices = Neighborhood | Iterable[Mapping[str, Any]] | Mapping[str, Iterable[Any]]

# What a group holds besides options, and the one that the accept test cannot follow.
_NO_OPTIONS = {"params", "param_names", "initial_lr", "maximize", "name"}
# Unusually large rates belong into H: the accept test discards them where they do harm (Section 3).
_RATE_MULTIPLES = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)


class GroupRates(Part):
    """One rate for all groups, each group at its own multiple of it.

    The multiple of a group is its learning rate before tuning over the largest one of all groups,
    times its ``lr_scale`` where it has one (timm's layer decay).

    Attributes:
        largest: the largest rate before tuning.

    Raises:
        ValueError: if a group has no learning rate, none of them is positive, or a scheduler has
            marked one.

    Example:
        >>> import torch
        >>> body, head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
        >>> base = torch.optim.SGD(
        ...     [{"params": body.parameters(), "lr": 0.001}, {"params": head.parameters()}], lr=0.01
        ... )
        >>> rates = GroupRates("SelfTuner", base)
        >>> rates.write(1.0)
        >>> [group["lr"] for group in base.param_groups]
        [0.1, 1.0]
    """

    def __init__(self, owner: str, base: Optimizer) -> None:
        self._owner = owner
        self._base = base
        given = [self._given(group) for group in base.param_groups]
        self.largest = max(given)
        if not 0 < self.largest < math.inf:
            raise ValueError(
                f"{owner}(base=...) must have a group with a positive learning rate, for the "
                f"ratios between groups are kept, got {', '.join(map(str, given))}"
            )
        self._ratios = [rate / self.largest for rate in given]
        self._left: list[Any] | None = None  # the rates that nobody else may change
        self.refuse_others()

    def write(self, rate: float) -> None:
        """Give every group its multiple of a rate."""
        self.apply({"lr": rate})

    def apply(self, setting: Mapping[str, Any]) -> None:
        """Write a setting: its rate as `write` does, every other option as it is."""
        write_setting(self._base, setting, self.multiples())

    def multiples(self) -> list[float]:
        """Return what the rate is multiplied by in each group; one that was just added counts."""
        groups = self._base.param_groups
        if len(groups) > len(self._ratios):
            added = groups[len(self._ratios) :]
            self._ratios = [*self._ratios, *(self._given(g) / self.largest for g in added)]
        multiples = []
        for ratio, group in zip(self._ratios, groups, strict=True):
            scale = group.get("lr_scale", 1.0)
            multiples.append(ratio if scale == 1.0 else ratio * float(scale))
        return multiples

    def claim(self) -> None:
        """Note the rates as they are: nobody else may change them from here on."""
        self._left = self._present()

    def renew(self) -> None:
        """Let them be changed until they are claimed again."""
        self._left = None

    def refuse_others(self) -> None:
        """Refuse whoever else writes the rate; from here on it may be written."""
        present = self._present()
        if present is None or (self._left is not None and self._left != present):
            found = "a scheduler (a group has 'initial_lr')"
            if present is not None:
                found = f"a change since the last step: {self._left} became {present}"
            raise ValueError(
                f"{self._owner}: the learning rate is tuned and must not be written by anything "
                f"else, got {found}. Take the scheduler away, also that of a framework, or leave "
                "lr out of the neighborhood if one is given"
            )
        self._left = None  # an interrupted step leaves rates that are ours too

    def _present(self) -> list[Any] | None:
        """Return the rates as they are; None if a scheduler has marked a group."""
        rates = []
        for group in self._base.param_groups:
            if "initial_lr" in group:
                return None
            rate = group["lr"]
            # A rate in a tensor is not read: that would wait for the device.
            rates.append(id(rate) if isinstance(rate, Tensor) else rate)
        return rates

    def state_dict(self) -> dict[str, Any]:
        """Return the ratios: those of groups that were added later cannot be found again."""
        return {"rates": {"largest": self.largest, "ratios": list(self._ratios)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        rates = state["rates"]
        self.largest, self._ratios = rates["largest"], list(rates["ratios"])

    def _given(self, group: Mapping[str, Any]) -> float:
        if "lr" not in group:
            raise ValueError(
                f"{self._owner}(base=...) must have a learning rate in every group, got one with "
                f"{', '.join(key for key in group if key != 'params')}"
            )
        return float(group["lr"])


def fitted(owner: str, base: Optimizer, neighborhood: Any) -> Neighborhood:
    """Return H without the settings that the base's own constructor refuses.

    Args:
        owner: name of the optimizer's class, for messages.
        base: the optimizer whose groups take the settings.
        neighborhood: H, any iterable of mappings, or None to derive it from the base's rate.

    Raises:
        TypeError: if it is no collection of settings.
        ValueError: if it names an option that nobody has or a scheduler writes, or nothing is left
            of it.
    """
    if neighborhood is None:
        largest = GroupRates(owner, base).largest
        neighborhood = grid(lr=[multiple * largest for multiple in _RATE_MULTIPLES])
    neighborhood = as_neighborhood(owner, neighborhood)
    groups = base.param_groups
    known = set.intersection(*map(set, groups)) - _NO_OPTIONS
    for option in neighborhood.options:
        if option not in known:
            raise ValueError(
                f"{owner}(neighborhood=...) must name options of {type(base).__name__}, got "
                f"{option!r}; there are {', '.join(sorted(known))}"
            )
    multiples = [1.0] * len(groups)
    if "lr" in neighborhood.options:
        multiples = GroupRates(owner, base).multiples()
    taken: list[Setting] = []
    dropped: list[Setting] = list(neighborhood.dropped)
    for setting in neighborhood:
        refused = False
        for group, multiple in zip(groups, multiples, strict=True):
            rate = {"lr": setting["lr"] * multiple} if "lr" in setting else {}
            refused = refused or refuses(base, group, {**setting, **rate})
        (dropped if refused else taken).append(setting)
    return Neighborhood(taken, dropped=dropped)


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
    if not any(group["params"] for group in base.param_groups):
        raise ValueError(f"{owner}(base=...) must have parameters to train, got none")
    refuse_maximizing(owner, base)


def refuse_maximizing(owner: str, base: Optimizer, *added: Any) -> None:
    """Refuse groups that maximize, also one to be added: arms and steps are compared by their loss.

    Raises:
        ValueError: if one does.
    """
    own = base.defaults.get("maximize", False)
    dicts = [group for group in added if isinstance(group, dict)]  # torch refuses anything else
    if any(group.get("maximize", own) for group in (*base.param_groups, *dicts)):
        raise ValueError(
            f"{owner}(base=...) must minimize, got one with maximize=True; negate the loss instead"
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


def refuses(base: Optimizer, group: dict[str, Any], options: Mapping[str, Any]) -> bool:
    """Tell whether the base's constructor refuses options beside a group's other ones.

    Or its step would: a rate that the kind of the weights cannot hold, such as 1e5 in float16.
    """
    if options.get("lr", 0.0) > highest_rate(group["params"]):
        return True
    accepted = inspect.signature(type(base).__init__).parameters
    present = {key: value for key, value in {**base.defaults, **group}.items() if key in accepted}
    # One element of the same kind and as many dimensions: some want matrices.
    first = group["params"][0] if group["params"] else torch.zeros(1)
    scratch = torch.zeros((1,) * first.ndim, dtype=first.dtype, device=first.device)

    def takes(changed: Mapping[str, Any]) -> bool:
        try:
            type(base)(**{**present, **changed, "params": [torch.nn.Parameter(scratch)]})
        except (ValueError, TypeError, RuntimeError, AssertionError):
            return False
        return True

    # A constructor that does not even take what the group has now has no say.
    return not takes(options) and takes({})
