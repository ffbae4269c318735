"""The options of each method, one block a method. Known without importing torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from annealtune.annealing import PAPER_RATES, Geometric, Neighborhood, Reheating, Schedule, grid

Number = Annotated[float, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
Factor = Annotated[float, Field(gt=0, lt=1, strict=True)]
Decay = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


def _listed(value: Any) -> Any:
    """Take a single value as a list of one."""
    return value if isinstance(value, list | tuple) else (value,)


Numbers = Annotated[tuple[Number, ...], BeforeValidator(_listed)]
NotNegatives = Annotated[tuple[Decay, ...], BeforeValidator(_listed)]
Flags = Annotated[tuple[Flag, ...], BeforeValidator(_listed)]
SGD_OPTIONS = ("lr", "momentum", "dampening", "weight_decay", "nesterov")


class Options(BaseModel):
    """Common to all blocks: immutable, no unknown key."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NeighborhoodOptions(Options):
    """The set H: the product of the values of each option."""

    lr: NotNegatives = Field(PAPER_RATES, description="learning rates in H")
    momentum: NotNegatives | None = Field(None, description="momenta in H")
    dampening: Numbers | None = Field(None, description="dampenings in H")
    weight_decay: NotNegatives | None = Field(None, description="weight decays in H")
    nesterov: Flags | None = Field(None, description="Nesterov or not, in H")

    @model_validator(mode="after")
    def _is_a_neighborhood(self) -> NeighborhoodOptions:
        if not any(map(_is_possible, self.neighborhood())):
            raise ValueError("nesterov = true needs a momentum above 0 and a dampening of 0 in H")
        return self

    def neighborhood(self) -> Neighborhood:
        """Return H."""
        given = {name: getattr(self, name) for name in SGD_OPTIONS}
        return grid(**{name: values for name, values in given.items() if values is not None})


class AnnealingOptions(Options):
    """Preset and temperature."""

    preset: Literal["paper-text", "paper-code"] | None = Field(
        None, description="the paper's settings, as its text states them or as its program ran"
    )
    temperature: Annotated[float, Field(ge=0, strict=True)] | None = Field(
        None, description="T0 in units of the loss; alone it is constant, unset it is automatic"
    )
    cooling_factor: Factor | None = Field(
        None, description="alpha: the temperature is multiplied by it at every tick"
    )
    cooling_per: Literal["epoch", "step"] = Field("epoch", description="what a tick is")
    floor: Decay = Field(0.0, description="the temperature does not fall below it")
    reheat_every: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        None, description="restore T0 after so many ticks"
    )
    reheat_times: Annotated[int, Field(ge=0, strict=True)] = Field(
        0, description="how often to restore T0"
    )

    @model_validator(mode="after")
    def _is_a_temperature(self) -> AnnealingOptions:
        if (self.reheat_every is None) != (self.reheat_times == 0):
            raise ValueError("reheat_every and reheat_times need each other")
        if self.cooling_factor is None and (
            self.reheat_times or self.floor or self.cooling_per != "epoch"
        ):
            raise ValueError("cooling_per, floor and reheat_every need a cooling_factor")
        if self.cooling_factor is not None and self.temperature is None:
            raise ValueError(
                f"cooling_factor = {self.cooling_factor} needs a temperature to start from"
            )
        self.schedule()
        return self

    def schedule(self) -> float | Schedule | None:
        """Return what the optimizers take as their temperature."""
        if self.cooling_factor is None or self.temperature is None:
            return self.temperature
        if self.temperature == 0 or math.isinf(self.temperature):
            raise ValueError(f"temperature = {self.temperature} cannot be cooled")
        cooling = Geometric(
            self.temperature, self.cooling_factor, per=self.cooling_per, floor=self.floor
        )
        if self.reheat_every is None:
            return cooling
        return Reheating(cooling, every=self.reheat_every, times=self.reheat_times)


class SgdSaOptions(AnnealingOptions, NeighborhoodOptions):
    """SGD-SA, Algorithm 2."""


class RandomRateOptions(NeighborhoodOptions):
    """The ablation: a random setting at every step, every finite move accepted."""


class SsaOptions(AnnealingOptions):
    """SSA, without gradients (Section 2.2)."""

    radius: Rate = Field(0.01, description="epsilon, the size of a move")
    shrink_below: Share | None = Field(
        None,
        description="divide the radius when fewer moves of an epoch improve; 0 never, "
        "unset never (0.6 with paper-code)",
    )
    shrink_factor: Annotated[float, Field(gt=1, allow_inf_nan=False, strict=True)] = Field(
        10.0, description="what the radius is divided by"
    )
    scaling: Literal["none", "rms"] = Field("none", description="per-layer size of a move")
    objective: Literal["loss", "error"] = Field(
        "loss", description="what is minimized: the loss, or one minus the accuracy"
    )


class SgdOptions(Options):
    """SGD at a constant rate, no momentum."""

    lr: Rate = Field(0.1, description="learning rate")


class ScheduledSgdOptions(Options):
    """The paper's baseline: a rate that is divided at fixed shares of the epochs."""

    lr: Rate = Field(0.1, description="first learning rate")
    factor: Factor = Field(0.1, description="the rate is multiplied by it at every milestone")
    milestones: tuple[Share, ...] = Field((0.3, 0.7), description="shares of the epochs")


class SgdMomentumOptions(Options):
    """SGD with momentum and a cosine to zero."""

    lr: Rate = Field(0.1, description="first learning rate")
    momentum: Annotated[float, Field(ge=0, lt=1, strict=True)] = Field(0.9, description="momentum")
    nesterov: Flag = Field(False, description="Nesterov's form of it")
    weight_decay: Decay = Field(5e-4, description="weight decay")

    @model_validator(mode="after")
    def _is_possible(self) -> SgdMomentumOptions:
        if not _is_possible(self.model_dump()):
            raise ValueError("nesterov = true needs a momentum above 0")
        return self


class AdamwOptions(Options):
    """AdamW with a cosine to zero."""

    lr: Rate = Field(1e-3, description="first learning rate")
    weight_decay: Decay = Field(0.01, description="weight decay")


def _is_possible(setting: Mapping[str, Any]) -> bool:
    """Whether torch's SGD takes these options together."""
    nesterov = setting.get("nesterov", False)
    return not nesterov or (setting.get("momentum", 0) > 0 and setting.get("dampening", 0) == 0)
