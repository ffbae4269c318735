"""Which metaheuristic a method uses and what it is given. Known without importing torch."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from annealtune.annealing import STRATEGIES, Automatic, Strategy, make_strategy, takes_temperature
from annealtune.training.lookup import is_factory, split_factory
from annealtune.training.options import AnnealingOptions, TemperatureOptions

DEFAULT_STRATEGY = "simulated-annealing"


class StrategyOptions(TemperatureOptions):
    """The strategy, and the temperature of those that take one."""

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
    def _fit_together(self) -> StrategyOptions:
        if self.strategy in STRATEGIES:  # a user's own is imported when the run starts
            self.make_strategy(STRATEGIES[self.strategy], epochs=1)
        return self

    def make_strategy(self, cls: type, epochs: int) -> Strategy:
        """Make the strategy and check that it fits the other options.

        Args:
            cls: what ``strategy`` names.
            epochs: length of the run, for a temperature that is not given.

        Raises:
            ValueError: if it does not take its options, a temperature that is given, or what else
                the block says.
        """
        given = {
            key: getattr(self, key)
            for key, field in TemperatureOptions.model_fields.items()
            if getattr(self, key) != field.default
        }
        if given and not takes_temperature(cls):
            key, value = next(iter(given.items()))
            raise ValueError(
                f"{key} = {value!r}: must be left out with strategy = {self.strategy!r}, which "
                "takes no temperature"
            )
        schedule = self.schedule()
        return _made(
            cls, self.strategy_options, Automatic(length=epochs) if schedule is None else schedule
        )


class PresetOptions(StrategyOptions, AnnealingOptions):
    """The strategy, or the paper's with one of its temperatures."""

    @model_validator(mode="after")
    def _is_the_papers_strategy(self) -> PresetOptions:
        if self.preset is not None and self.strategy != DEFAULT_STRATEGY:
            raise ValueError(
                f"preset = {self.preset!r} needs strategy = {DEFAULT_STRATEGY!r}, the paper's, got "
                f"{self.strategy!r}"
            )
        return self


def known_name(key: str, value: str, names: tuple[str, ...], form: str) -> str:
    """Return a name if it is one of those known, or has the form of a thing to import.

    Args:
        key: the config key it was given for.
        value: the name.
        names: those known.
        form: how a thing to import is written, for messages.

    Raises:
        ValueError: if it is neither.
    """
    if is_factory(value):
        split_factory(key, value)
        return value
    if value not in names:
        near = difflib.get_close_matches(value.lower().replace("_", "-"), names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"must be one of {', '.join(names)} or {form}, got {value!r}{hint}")
    return value


def _made(strategy: str | type, options: dict[str, Any] | None, temperature: Any) -> Strategy:
    owner = "strategy"
    try:
        return make_strategy(owner, strategy, options or {}, temperature)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(str(error).removeprefix(f"{owner}(strategy=...): ")) from None
