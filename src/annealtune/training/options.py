"""The options of the methods, one block a method. Known without importing torch.

What H is made of is in `neighborhood_options.py`, the strategy in `strategy_options.py`, the blocks
of the methods that anneal are in `annealed_options.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from annealtune.annealing import Geometric, Reheating, Schedule

Flag = Annotated[bool, Field(strict=True)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
Factor = Annotated[float, Field(gt=0, lt=1, strict=True)]
BelowOne = Annotated[float, Field(ge=0, lt=1, strict=True)]
Decay = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


class Options(BaseModel):
    """Common to all blocks: immutable, no unknown key."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TemperatureOptions(Options):
    """The temperature of the accept test and how it falls."""

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
    def _is_a_temperature(self) -> TemperatureOptions:
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


class AnnealingOptions(TemperatureOptions):
    """The temperature, or one of the paper's."""

    preset: Literal["paper-text", "paper-code"] | None = Field(
        None, description="the paper's settings, as its text states them or as its program ran"
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
    momentum: BelowOne = Field(0.9, description="momentum")
    nesterov: Flag = Field(False, description="Nesterov's form of it")
    weight_decay: Decay = Field(5e-4, description="weight decay")

    @model_validator(mode="after")
    def _is_possible(self) -> SgdMomentumOptions:
        if not is_possible(self.model_dump()):
            raise ValueError("nesterov = true needs a momentum above 0")
        return self


class AdamwOptions(Options):
    """AdamW with a cosine to zero."""

    lr: Rate = Field(1e-3, description="first learning rate")
    weight_decay: Decay = Field(0.01, description="weight decay")


def is_possible(setting: Mapping[str, Any]) -> bool:
    """Whether torch's SGD takes these options together."""
    nesterov = setting.get("nesterov", False)
    return not nesterov or (setting.get("momentum", 0) > 0 and setting.get("dampening", 0) == 0)
