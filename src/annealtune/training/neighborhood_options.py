"""What H is made of: a list of values for each key, or each member. No torch is imported."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from annealtune.annealing import PAPER_RATES, Neighborhood, grid, log_range
from annealtune.errors import ConfigError
from annealtune.training.options import BelowOne, Decay, Flag, Options, Rate, Share, is_possible
from annealtune.training.setting_options import (
    AdamwSettings,
    Number,
    SettingOptions,
    SgdSettings,
    is_pair,
)

# The keys that may be options of H, in the order in which H is built; no block has all of them.
SGD_OPTIONS = ("lr", "momentum", "dampening", "weight_decay", "nesterov")
ADAMW_OPTIONS = ("lr", "weight_decay", "betas", "eps", "amsgrad")
LOOP_OPTIONS = ("label_smoothing", "dropout", "clip_norm", "augment_strength")
_IN_H = dict.fromkeys((*SGD_OPTIONS, *ADAMW_OPTIONS, *LOOP_OPTIONS))
MOST_VALUES = 1000


def _listed(value: Any) -> Any:
    """Take a single value as a list of one, and a table as values in equal ratios."""
    if isinstance(value, Mapping):
        return _in_equal_ratios(value)
    return value if isinstance(value, list | tuple) else (value,)


def _in_equal_ratios(table: Mapping[str, Any]) -> tuple[float, ...]:
    rule = "must be a value, a list of values or { low = 1e-4, high = 1.0, count = 9 }"
    if table.keys() != {"low", "high", "count"}:
        raise ValueError(f"{rule}, got the keys {', '.join(map(str, table)) or 'none'}")
    if isinstance(table["count"], int) and table["count"] > MOST_VALUES:
        raise ValueError(f"{rule}, count at most {MOST_VALUES}, got {table['count']}")
    try:
        return log_range(table["low"], table["high"], table["count"])
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{rule}: {error}") from None


def _pairs(value: Any) -> Any:
    """Take a single pair as a list of one."""
    if is_pair(value):
        return (value,)
    if not isinstance(value, list | tuple) or not all(map(is_pair, value)):
        raise ValueError(f"must be pairs such as [[0.9, 0.999]], got {value!r}")
    return value


def begins(name: str, start: str) -> bool:
    """Tell whether a dotted name lies within a part of the model.

    Example:
        >>> begins("features.1.weight", "features.1"), begins("features.10.weight", "features.1")
        (True, False)
    """
    return name == start or name.startswith(f"{start}.")


def _apart(value: dict[str, float]) -> dict[str, float]:
    """Refuse parts of the model that lie within each other."""
    for one, other in itertools.permutations(value, 2):
        if begins(other, one):
            raise ValueError(
                f"must name different parts of the model, got {one!r} and {other!r}, which lies "
                "within it"
            )
    return value


_Listed = BeforeValidator(_listed)
Numbers = Annotated[tuple[Number, ...], _Listed]
NotNegatives = Annotated[tuple[Decay, ...], _Listed]
Positives = Annotated[tuple[Rate, ...], _Listed]
Shares = Annotated[tuple[Share, ...], _Listed]
AllBelowOne = Annotated[tuple[BelowOne, ...], _Listed]
Flags = Annotated[tuple[Flag, ...], BeforeValidator(_listed)]
Pairs = Annotated[tuple[tuple[BelowOne, BelowOne], ...], BeforeValidator(_pairs)]
Scales = Annotated[dict[str, Decay], AfterValidator(_apart)]


class NeighborhoodOptions(Options):
    """The set H: the product of the values of each option, or its members one by one."""

    @field_validator("settings", check_fields=False)
    @classmethod
    def _are_different(
        cls, value: tuple[SettingOptions, ...] | None
    ) -> tuple[SettingOptions, ...] | None:
        if value is not None:
            try:
                Neighborhood(map(_in_order, value))
            except ValueError as error:
                raise ValueError(str(error).removeprefix("Neighborhood(settings=...) ")) from None
        return value

    @model_validator(mode="after")
    def _is_written_in_one_way(self) -> NeighborhoodOptions:
        lists = [name for name in self._lists() if name in self.model_fields_set]
        if self._members() is not None and lists:
            raise ValueError(
                f"settings: must be all of H, got {', '.join(lists)} beside it; write either "
                "settings or a list for each option"
            )
        return self

    def neighborhood(self) -> Neighborhood:
        """Return H."""
        members = self._members()
        if members is not None:
            return Neighborhood(map(_in_order, members))
        return grid(**self._lists())

    def possible(self) -> Neighborhood:
        """Return H without the settings that torch's optimizer will refuse."""
        return Neighborhood(filter(is_possible, self.neighborhood()))

    def idle(self) -> set[str]:
        """Return the keys whose defaults mean nothing here: written down, they would be given."""
        return set() if self._members() is None else {"lr"}

    def loop_options(self) -> tuple[str, ...]:
        """Return the options of H that belong to the training loop."""
        members = self._members()
        given = self._lists() if members is None else members[0].given()
        return tuple(name for name in LOOP_OPTIONS if name in given)

    def _members(self) -> tuple[SettingOptions, ...] | None:
        members: tuple[SettingOptions, ...] | None = getattr(self, "settings", None)
        return members

    def _lists(self) -> dict[str, tuple[Any, ...]]:
        given = {name: getattr(self, name, None) for name in _IN_H}
        return {name: values for name, values in given.items() if values is not None}


def _in_order(setting: SettingOptions) -> dict[str, Any]:
    """Return the options of a setting in the order in which H is built."""
    given = setting.given()
    return {name: given[name] for name in _IN_H if name in given}


class SgdNeighborhood(NeighborhoodOptions):
    """Options of torch.optim.SGD."""

    lr: NotNegatives = Field(PAPER_RATES, description="learning rates in H")
    momentum: NotNegatives | None = Field(None, description="momenta in H")
    dampening: Numbers | None = Field(None, description="dampenings in H")
    weight_decay: NotNegatives | None = Field(None, description="weight decays in H")
    nesterov: Flags | None = Field(None, description="Nesterov or not, in H")
    settings: SgdSettings | None = Field(
        None, description="H one by one instead: [{ lr = 0.5, momentum = 0.0 }, ...]"
    )

    @model_validator(mode="after")
    def _is_a_neighborhood(self) -> SgdNeighborhood:
        if not any(map(is_possible, self.neighborhood())):
            raise ValueError("nesterov = true needs a momentum above 0 and a dampening of 0 in H")
        return self


class AdamwNeighborhood(NeighborhoodOptions):
    """Options of torch.optim.AdamW."""

    lr: NotNegatives = Field(log_range(1e-4, 1e-2, 7), description="learning rates in H")
    weight_decay: NotNegatives | None = Field(None, description="weight decays in H (unset: 0.01)")
    betas: Pairs | None = Field(None, description="pairs of betas in H (unset: 0.9, 0.999)")
    eps: NotNegatives | None = Field(None, description="epsilons in H (unset: 1e-8)")
    amsgrad: Flags | None = Field(None, description="AMSGrad or not, in H")
    settings: AdamwSettings | None = Field(
        None, description="H one by one instead: [{ lr = 0.01, betas = [0.9, 0.99] }, ...]"
    )

    @model_validator(mode="after")
    def _is_a_neighborhood(self) -> AdamwNeighborhood:
        self.neighborhood()
        return self


class LoopNeighborhood(NeighborhoodOptions):
    """Options of the training loop, and parts of the model with a rate of their own."""

    label_smoothing: AllBelowOne | None = Field(
        None, description="label smoothings of the training loss in H"
    )
    dropout: AllBelowOne | None = Field(
        None, description="dropout rates in H, for all dropout layers of the model"
    )
    clip_norm: Positives | None = Field(
        None, description="norms in H that the gradient is clipped to"
    )
    augment_strength: Shares | None = Field(
        None, description="strengths of the augmentation in H, 1 is all of it; needs augment"
    )
    scales: Scales | None = Field(
        None,
        description="factors of the rate by the start of a parameter's name: { features = 0.5 }",
    )

    def check_run(self, method: str, *, precision: str, augment: str) -> None:
        """Check the options against keys of the run.

        Args:
            method: name of the block, for messages.
            precision: of the forward.
            augment: name of the augmentation.

        Raises:
            ConfigError: if they do not fit.
        """
        if "augment_strength" in self.loop_options() and augment == "none":
            raise ConfigError(
                f"augment = 'none': must be crop-flip with {method}.augment_strength, which says "
                "how much of it"
            )


class RandomRateOptions(LoopNeighborhood, SgdNeighborhood):
    """The ablation: a random setting at every step, every finite move accepted."""
