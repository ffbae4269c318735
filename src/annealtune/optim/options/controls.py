"""Everything a setting of H can turn: the options of the base's groups and those of the loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from annealtune.annealing import Neighborhood, Setting, grid
from annealtune.annealing.arguments import number
from annealtune.optim.evaluation.foreign import scheduler_to_take_away
from annealtune.optim.options.checks import as_neighborhood, plain
from annealtune.optim.options.group_rates import GroupRates
from annealtune.optim.options.loop_options import LoopOption
from annealtune.optim.options.miniature import refuses

# Ways to write H, and scales of groups by their names.
Choices = Neighborhood | Iterable[Mapping[str, Any]] | Mapping[str, Iterable[Any]]
Scales = Mapping[str, float | Mapping[str, float]]

# What a group holds besides options, and the one that the accept test cannot follow.
_NO_OPTIONS = {"params", "param_names", "initial_lr", "maximize", "name"}
# Unusually large rates belong into H: the accept test discards them where they do harm (Section 3).
_RATE_MULTIPLES = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125)


class Controls:
    """Where the options of a setting are written to, and how loop options are put back.

    Groups of different rates keep their ratios: a rate of H is that of the largest.

    Attributes:
        loop_options: the options of H that belong to the loop: the forward depends on them.
        options_but_rate: all options of H but ``lr``.

    Args:
        base: the optimizer whose groups take the settings.
        loop: further options by name.
        group_scales: further factors of the options of named groups; a number scales ``lr``.

    Raises:
        TypeError: if a loop option cannot be read and written, or a scale is no number.
        ValueError: if a loop option has the name of an option of the base, or no group has a name
            that is scaled.
    """

    def __init__(
        self,
        owner: str,
        base: Optimizer,
        loop: Mapping[str, LoopOption] | None,
        group_scales: Scales | None,
    ) -> None:
        self.owner = owner
        self._base = base
        self._rates: GroupRates | None = None  # where H sets lr
        self._loop = _checked_loop(owner, loop or {}, base)
        self._scales = _checked_scales(owner, group_scales or {}, base)
        self._options: tuple[str, ...] = ()  # those of H that belong to the base
        self.loop_options: tuple[str, ...] = ()
        self.options_but_rate: tuple[str, ...] = ()
        self._left: list[tuple[dict[str, Any], list[Any]]] = []  # what the last step left
        self._loop_before: dict[str, Any] = {}

    def fit(self, neighborhood: Any) -> Neighborhood:
        """Return H without the settings that the base's own constructor refuses.

        Args:
            neighborhood: H, any iterable of mappings, or None to derive it from the base's rate.

        Raises:
            TypeError: if it is no collection of settings.
            ValueError: if it names an option that nobody has, or nothing is left of it.
        """
        if neighborhood is None:
            neighborhood = _around_the_largest_rate(self.owner, self._base)
        neighborhood = as_neighborhood(self.owner, neighborhood)
        known = _options_of(self._base)
        for option in neighborhood.options:
            if option not in known and option not in self._loop:
                registered = f" and, registered, {', '.join(self._loop)}" if self._loop else ""
                raise ValueError(
                    f"{self.owner}(neighborhood=...) must name options of "
                    f"{type(self._base).__name__} or of loop=..., got {option!r}; there are "
                    f"{', '.join(sorted(known))}{registered}"
                )
        self._options = tuple(o for o in neighborhood.options if o not in self._loop)
        for option in {o for scales in self._scales.values() for o in scales}:
            if option not in self._options:
                raise ValueError(
                    f"{self.owner}(group_scales=...) must scale options that H sets, here "
                    f"{', '.join(self._options) or 'none'}, got {option!r}"
                )
            for setting in neighborhood:
                number(f"{self.owner}(group_scales=...): the {option} it scales", setting[option])
        self._rates = GroupRates(self.owner, self._base) if "lr" in self._options else None
        taken: list[Setting] = []
        dropped: list[Setting] = list(neighborhood.dropped)
        for setting in neighborhood:
            refused = any(refuses(self._base, *group) for group in self._by_group(setting))
            (dropped if refused else taken).append(setting)
        fitting = Neighborhood(taken, dropped=dropped)
        self._loop = {o: self._loop[o] for o in neighborhood.options if o in self._loop}
        self.loop_options = tuple(self._loop)
        self.options_but_rate = tuple(o for o in neighborhood.options if o != "lr")
        self.refuse_schedulers()
        return fitting

    def turn_loop(self, setting: Setting) -> None:
        """Write the loop's options; what they were is remembered until `keep` or `put_back`."""
        try:
            for name, option in self._loop.items():
                self._loop_before.setdefault(name, option.read())
                option.write(setting[name])
        except BaseException:  # all of them or none
            self.put_back()
            raise

    def turn_base(self, setting: Setting) -> None:
        """Write the base's options into every group."""
        for group, options in self._by_group(setting):
            for option, value in options.items():
                if isinstance(group[option], Tensor):
                    group[option].fill_(value)
                else:
                    group[option] = value

    def put_back(self) -> None:
        """Give the loop's options the values they had before the step."""
        self.rest(self._loop_before)

    def keep(self) -> None:
        """End the step with everything as it is."""
        self._loop_before = {}
        self.note()

    def note(self) -> None:
        """Note what the groups hold, to find out who else writes there."""
        self._left = [
            (group, list(map(plain, map(group.__getitem__, self._options))))
            for group in self._base.param_groups
        ]

    def resting(self) -> dict[str, Any]:
        """Return the loop's options as they are outside of a step."""
        return {name: self._loop_before.get(name, o.read()) for name, o in self._loop.items()}

    def present(self) -> dict[str, Any]:
        """Return the loop's options as they are now."""
        return {name: option.read() for name, option in self._loop.items()}

    def check_resting(self, values: Mapping[str, Any]) -> None:
        """Refuse what `resting` returned elsewhere; nothing at all is of an older version."""
        if values and values.keys() != self._loop.keys():
            raise ValueError(
                f"{self.owner}.load_state_dict: the state must come from a run whose H sets the "
                f"same options of the loop, here {', '.join(self._loop) or 'none'}, got "
                f"{', '.join(values)}"
            )

    def rest(self, values: Mapping[str, Any]) -> None:
        """Continue where `resting` was taken."""
        for name, value in values.items():
            self._loop[name].write(value)
        self._loop_before = {}

    def refuse_schedulers(self) -> None:
        """Refuse whoever else writes into an option that is picked anew at every step.

        A chainable scheduler multiplies whatever rate it finds: it would compound on random picks.
        """
        for group in self._base.param_groups:
            if "initial_lr" in group and "lr" in self._options:
                raise ValueError(
                    f"{self.owner}: the neighborhood must not hold lr while a learning-rate "
                    "scheduler is attached (a group has 'initial_lr'): each would overwrite the "
                    "other. Take the scheduler away, or leave lr out of the neighborhood"
                    f"{scheduler_to_take_away()}"
                )
        for group, (same, left) in zip(self._base.param_groups, self._left, strict=False):
            for option, value in zip(self._options, left if group is same else (), strict=False):
                if group[option] is not value and plain(group[option]) != value:
                    raise ValueError(
                        f"{self.owner}: {option} is in the neighborhood, so nothing else may write "
                        f"it, got {plain(group[option])!r} where the last step left {value!r}. "
                        f"Take the scheduler away, or leave {option} out of the neighborhood"
                        f"{scheduler_to_take_away()}"
                    )

    def _by_group(self, setting: Setting) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return every group of the base with its part of a setting, in the scale of the group."""
        groups = self._base.param_groups
        multiples = [1.0] * len(groups) if self._rates is None else self._rates.multiples()
        options = {option: setting[option] for option in self._options}
        parts = []
        for group, multiple in zip(groups, multiples, strict=True):
            part = dict(options)
            if multiple != 1:
                part["lr"] *= multiple
            for option, scale in self._scales.get(group.get("name"), {}).items():
                part[option] *= scale
            parts.append((group, part))
        return parts


def _options_of(base: Optimizer) -> set[str]:
    return set.intersection(*(set(group) for group in base.param_groups)) - _NO_OPTIONS


def _checked_loop(owner: str, loop: Any, base: Optimizer) -> dict[str, LoopOption]:
    if not isinstance(loop, Mapping):
        raise TypeError(f"{owner}(loop=...) must map names to loop options, got {loop!r}")
    for name, option in loop.items():
        if not isinstance(option, LoopOption) or isinstance(option, type):
            raise TypeError(
                f"{owner}(loop={{{name!r}: ...}}) must have read() and write(value), as Attribute "
                f"and Value do, got {option!r}"
            )
        if name in _options_of(base):
            raise ValueError(
                f"{owner}(loop=...) must use other names than the options of "
                f"{type(base).__name__}, got {name!r}"
            )
    return dict(loop)


def _checked_scales(
    owner: str, group_scales: Any, base: Optimizer
) -> dict[str | None, dict[str, float]]:
    if not isinstance(group_scales, Mapping):
        raise TypeError(
            f"{owner}(group_scales=...) must map names of groups to factors, got {group_scales!r}"
        )
    names = [group["name"] for group in base.param_groups if "name" in group]
    checked: dict[str | None, dict[str, float]] = {}
    for name, scales in group_scales.items():
        if name not in names:
            raise ValueError(
                f"{owner}(group_scales=...) must name groups of the base, got {name!r}; "
                + (f"there are {', '.join(map(repr, names))}" if names else "no group has a 'name'")
            )
        scales = scales if isinstance(scales, Mapping) else {"lr": scales}
        for option, scale in scales.items():
            argument = f"{owner}(group_scales={{{name!r}: ...}})"
            if not 0 <= number(argument, scale) < float("inf"):
                raise ValueError(f"{argument} must be finite and not negative, got {scale!r}")
            if option not in _options_of(base):
                raise ValueError(
                    f"{argument} must scale an option of {type(base).__name__}, got {option!r}"
                )
        checked[name] = dict(scales)
    return checked


def _around_the_largest_rate(owner: str, base: Optimizer) -> Neighborhood:
    rates = [float(group["lr"]) for group in base.param_groups if "lr" in group]
    if not 0 < max(rates, default=0.0) < float("inf"):
        raise ValueError(
            f"{owner}(neighborhood=...) must be given where no group of the base has a positive "
            f"learning rate, got {', '.join(map(str, rates)) or 'none'}"
        )
    return grid(lr=[multiple * max(rates) for multiple in _RATE_MULTIPLES])
