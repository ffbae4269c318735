"""What H is made of: a list of values for each key, or each member. No torch is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator, model_validator

from annealtune.annealing import PAPER_RATES, Neighborhood, grid, log_range
from annealtune.errors import ConfigError

from .values import (
    BelowOne,
    Flag,
    Listed,
    NotNegative,
    Number,
    Options,
    Pair,
    Pairs,
    Positive,
    Scales,
    Share,
    Tables,
)

LOOP_OPTIONS = ("label_smoothing", "dropout", "clip_norm", "augment_strength")
# The keys that may be options of H, in the order in which H is built; no block has all of them.
_IN_H = (
    *("lr", "momentum", "dampening", "weight_decay", "nesterov", "betas", "eps", "amsgrad"),
    *LOOP_OPTIONS,
)


class SettingOptions(Options):
    """One member of H: a learning rate and options of the training loop."""

    lr: NotNegative
    label_smoothing: BelowOne | None = None
    dropout: BelowOne | None = None
    clip_norm: Positive | None = None
    augment_strength: Share | None = None

    def given(self) -> dict[str, Any]:
        """Return the options that it sets, in the order in which H is built."""
        values = {name: getattr(self, name, None) for name in _IN_H}
        return {name: value for name, value in values.items() if value is not None}


class SgdSetting(SettingOptions):
    """A member of H with options of torch.optim.SGD."""

    momentum: NotNegative | None = None
    dampening: Number | None = None
    weight_decay: NotNegative | None = None
    nesterov: Flag | None = None


class AdamwSetting(SettingOptions):
    """A member of H with options of torch.optim.AdamW."""

    weight_decay: NotNegative | None = None
    betas: Pair | None = None
    eps: NotNegative | None = None
    amsgrad: Flag | None = None


class SgdKeys(Options):
    """The options of torch.optim.SGD in H."""

    lr: Listed[NotNegative] = Field(PAPER_RATES, description="learning rates in H")
    momentum: Listed[NotNegative] | None = Field(None, description="momenta in H")
    dampening: Listed[Number] | None = Field(None, description="dampenings in H")
    weight_decay: Listed[NotNegative] | None = Field(None, description="weight decays in H")
    nesterov: Listed[Flag] | None = Field(None, description="Nesterov or not, in H")
    settings: Tables[SgdSetting] | None = Field(
        None, description="H one by one instead: [{ lr = 0.5, momentum = 0.0 }, ...]"
    )


class AdamwKeys(Options):
    """The options of torch.optim.AdamW in H."""

    lr: Listed[NotNegative] = Field(log_range(1e-4, 1e-2, 7), description="learning rates in H")
    weight_decay: Listed[NotNegative] | None = Field(
        None, description="weight decays in H (unset: 0.01)"
    )
    betas: Pairs | None = Field(None, description="pairs of betas in H (unset: 0.9, 0.999)")
    eps: Listed[NotNegative] | None = Field(None, description="epsilons in H (unset: 1e-8)")
    amsgrad: Listed[Flag] | None = Field(None, description="AMSGrad or not, in H")
    settings: Tables[AdamwSetting] | None = Field(
        None, description="H one by one instead: [{ lr = 0.01, betas = [0.9, 0.99] }, ...]"
    )


class NeighborhoodOptions(Options):
    """The set H: the product of the values of each option, or its members one by one.

    The keys here are those of the training loop; a block adds those of its optimizer.
    """

    label_smoothing: Listed[BelowOne] | None = Field(
        None, description="label smoothings of the training loss in H"
    )
    dropout: Listed[BelowOne] | None = Field(
        None, description="dropout rates in H, for all dropout layers of the model"
    )
    clip_norm: Listed[Positive] | None = Field(
        None, description="norms in H that the gradient is clipped to"
    )
    augment_strength: Listed[Share] | None = Field(
        None, description="strengths of the augmentation in H, 1 is all of it; needs augment"
    )
    scales: Scales = None

    @field_validator("settings", check_fields=False)
    @classmethod
    def _members_differ(
        cls, value: tuple[SettingOptions, ...] | None
    ) -> tuple[SettingOptions, ...] | None:
        if value is not None:
            try:
                Neighborhood(member.given() for member in value)
            except ValueError as error:
                raise ValueError(str(error).removeprefix("Neighborhood(settings=...) ")) from None
        return value

    @model_validator(mode="after")
    def _is_a_neighborhood(self) -> NeighborhoodOptions:
        lists = [name for name in self._lists() if name in self.model_fields_set]
        if self._members() is not None and lists:
            raise ValueError(
                f"settings: must be all of H, got {', '.join(lists)} as well; write either "
                "settings or a list for each option"
            )
        if not any(map(is_possible, self.neighborhood())):
            raise ValueError("nesterov = true needs a momentum above 0 and a dampening of 0 in H")
        return self

    def neighborhood(self) -> Neighborhood:
        """Return H."""
        members = self._members()
        if members is not None:
            return Neighborhood(member.given() for member in members)
        return grid(**self._lists())

    def idle(self) -> set[str]:
        """Return the keys whose defaults mean nothing here: written down, they would be given."""
        return set() if self._members() is None else {"lr"}

    def loop_options(self) -> tuple[str, ...]:
        """Return the options of H that belong to the training loop."""
        members = self._members()
        given = self._lists() if members is None else members[0].given()
        return tuple(name for name in LOOP_OPTIONS if name in given)

    def check_run(self, method: str, *, precision: str, augment: str) -> None:
        """Check the options against keys of the run.

        Raises:
            ConfigError: if they do not fit.
        """
        if "augment_strength" in self.loop_options() and augment == "none":
            raise ConfigError(
                f"augment = 'none': must be crop-flip with {method}.augment_strength, which says "
                "how much of it"
            )

    def _members(self) -> tuple[SettingOptions, ...] | None:
        members: tuple[SettingOptions, ...] | None = getattr(self, "settings", None)
        return members

    def _lists(self) -> dict[str, tuple[Any, ...]]:
        given = {name: getattr(self, name, None) for name in _IN_H}
        return {name: values for name, values in given.items() if values is not None}


def is_possible(setting: Mapping[str, Any]) -> bool:
    """Whether torch's SGD takes these options together."""
    nesterov = setting.get("nesterov", False)
    return not nesterov or (setting.get("momentum", 0) > 0 and setting.get("dampening", 0) == 0)
