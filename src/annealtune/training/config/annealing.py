"""The temperature and the strategy of the methods that accept moves or undo them."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from annealtune.annealing import (
    STRATEGIES,
    Automatic,
    Geometric,
    Reheating,
    Schedule,
    Strategy,
    make_strategy,
    takes_temperature,
)
from annealtune.errors import did_you_mean
from annealtune.training.factories import is_factory, split_factory

from .values import Factor, NotNegative, Options

DEFAULT_STRATEGY = "simulated-annealing"
TEMPERATURE_KEYS = (
    "temperature",
    "cooling_factor",
    "cooling_per",
    "floor",
    "reheat_every",
    "reheat_times",
)


class AnnealingOptions(Options):
    """Common to the methods that accept moves or undo them: the temperature and the strategy."""

    temperature: Annotated[float, Field(ge=0, strict=True)] | None = Field(
        None, description="T0 in units of the loss; alone it is constant, unset it is automatic"
    )
    cooling_factor: Factor | None = Field(
        None, description="alpha: the temperature is multiplied by it at every tick"
    )
    cooling_per: Literal["epoch", "step"] = Field("epoch", description="what a tick is")
    floor: NotNegative = Field(0.0, description="the temperature does not fall below it")
    reheat_every: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        None, description="restore T0 after this many ticks"
    )
    reheat_times: Annotated[int, Field(ge=0, strict=True)] = Field(
        0, description="how often to restore T0"
    )
    strategy: str = Field(
        DEFAULT_STRATEGY, description="the metaheuristic: a built-in one or package.module:Class"
    )
    strategy_options: dict[str, Any] | None = Field(
        None, description="arguments of the strategy, such as { length = 5 } of late-acceptance"
    )

    @field_validator("strategy")
    @classmethod
    def _is_a_strategy(cls, value: str) -> str:
        return known_name("strategy", value, tuple(STRATEGIES), "package.module:Class")

    @field_validator("strategy_options")
    @classmethod
    def _fit_the_strategy(
        cls, value: dict[str, Any] | None, info: ValidationInfo
    ) -> dict[str, Any] | None:
        name = info.data.get("strategy")
        if name in STRATEGIES:
            _made(name, value, 1.0)
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> AnnealingOptions:
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
        if self.strategy in STRATEGIES:  # a user's own is imported when the run starts
            self.make_strategy(STRATEGIES[self.strategy], epochs=1)
        preset = getattr(self, "preset", None)
        if preset is not None and self.strategy != DEFAULT_STRATEGY:
            raise ValueError(
                f"preset = {preset!r} needs strategy = {DEFAULT_STRATEGY!r}, the paper's, got "
                f"{self.strategy!r}"
            )
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

    def make_strategy(self, cls: type, epochs: int) -> Strategy:
        """Make the strategy and check that it fits the other options.

        Args:
            cls: what ``strategy`` names.
            epochs: length of the run, for a temperature that is not given.

        Raises:
            ValueError: if it refuses its options or a given temperature, or does not fit the rest
                of the block.
        """
        if not takes_temperature(cls):
            for key in TEMPERATURE_KEYS:
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(
                        f"{key} = {getattr(self, key)!r}: must be left out with strategy = "
                        f"{self.strategy!r}, which takes no temperature"
                    )
        schedule = self.schedule()
        return _made(
            cls, self.strategy_options, Automatic(length=epochs) if schedule is None else schedule
        )


def known_name(key: str, value: str, names: tuple[str, ...], form: str) -> str:
    """Return the value of a key if it is a known name, or has the form of a thing to import.

    Raises:
        ValueError: if it is neither.
    """
    if is_factory(value):
        split_factory(key, value)
    elif value not in names:
        raise ValueError(
            f"must be one of {', '.join(names)} or {form}, got {value!r}"
            f"{did_you_mean(value, names)}"
        )
    return value


def _made(strategy: str | type, options: dict[str, Any] | None, temperature: Any) -> Strategy:
    owner = "strategy"
    try:
        return make_strategy(owner, strategy, options or {}, temperature)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(str(error).removeprefix(f"{owner}(strategy=...): ")) from None
