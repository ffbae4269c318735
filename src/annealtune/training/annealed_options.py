"""The blocks of the tuned methods: H, temperature, strategy, accept test. No torch is imported."""

from __future__ import annotations

import difflib
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from annealtune.annealing import (
    STRATEGIES,
    Automatic,
    Comparing,
    Strategy,
    make_strategy,
    takes_temperature,
)
from annealtune.errors import ConfigError
from annealtune.training.lookup import is_factory, split_factory
from annealtune.training.neighborhood_options import (
    AdamwNeighborhood,
    LoopNeighborhood,
    SgdNeighborhood,
)
from annealtune.training.options import AnnealingOptions, Factor, Options, TemperatureOptions

DEFAULT_STRATEGY = "simulated-annealing"
STRATEGY_OPTIONS = ("strategy", "strategy_options")
DEFAULT_HELD_OUT = 0.1


class AcceptanceOptions(Options):
    """What the accept test compares, and on which images."""

    accept_on: str = Field(
        "loss", description="what moves are judged by: loss, error or package.module:function"
    )
    accept_batch: Literal["same", "next", "held-out"] = Field(
        "same", description="where: the minibatch of the gradient, the one after it, or held-out"
    )
    held_out_fraction: Factor = Field(
        DEFAULT_HELD_OUT,
        description="share of the training part kept apart for accept_batch = held-out",
    )

    @field_validator("accept_on")
    @classmethod
    def _is_known(cls, value: str) -> str:
        return _known("accept_on", value, ("loss", "error"), "package.module:function")

    @model_validator(mode="after")
    def _holds_out_for_a_reason(self) -> AcceptanceOptions:
        if self.held_out_fraction != DEFAULT_HELD_OUT and self.accept_batch != "held-out":
            raise ValueError(
                f"held_out_fraction = {self.held_out_fraction} needs accept_batch = 'held-out', "
                f"got {self.accept_batch!r}"
            )
        return self


class TunedOptions(AcceptanceOptions, TemperatureOptions, LoopNeighborhood):
    """Common to the methods that tune a torch optimizer."""

    strategy: str = Field(
        DEFAULT_STRATEGY, description="the metaheuristic: a built-in one or package.module:Class"
    )
    strategy_options: dict[str, Any] | None = Field(
        None, description="arguments of the strategy, such as { tenure = 5 } of tabu"
    )

    @field_validator("strategy")
    @classmethod
    def _is_a_strategy(cls, value: str) -> str:
        return _known("strategy", value, tuple(STRATEGIES), "package.module:Class")

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
    def _fit_together(self) -> TunedOptions:
        if self.strategy in STRATEGIES:  # a user's own is imported when the run starts
            self.make_strategy(STRATEGIES[self.strategy], epochs=1)
        return self

    def check_run(self, method: str, *, precision: str, augment: str) -> None:
        """Check the options against keys of the run."""
        super().check_run(method, precision=precision, augment=augment)
        if self.accept_batch == "next" and precision == "fp16":
            raise ConfigError(
                f"precision = 'fp16': must be fp32 or bf16 with {method}.accept_batch = 'next', "
                "where the scale of a gradient would change before it is used"
            )

    def make_strategy(self, cls: type, epochs: int) -> Strategy:
        """Make the strategy and check that it fits the other options.

        Args:
            cls: what ``strategy`` names.
            epochs: length of the run, for a temperature that is not given.

        Raises:
            ValueError: if it does not take its options, a temperature that is given, H, or the
                way in which moves are judged.
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
        strategy = _made(
            cls, self.strategy_options, Automatic(length=epochs) if schedule is None else schedule
        )
        strategy.check(self.possible())
        if isinstance(strategy, Comparing) and strategy.candidates > 1:
            self._refuse_candidates(strategy.candidates)
        return strategy

    def _refuse_candidates(self, candidates: int) -> None:
        """Refuse several candidates where only one can be tried, or each needs its own gradient."""
        reason = None
        if self.accept_batch == "next":
            reason = "accept_batch = 'next' tries one"
        elif self.loop_options():
            reason = f"each value of {self.loop_options()[0]} in H needs a gradient of its own"
        if reason is not None:
            raise ValueError(
                f"strategy = {self.strategy!r} compares {candidates} candidates a step, but "
                f"{reason}; set strategy_options = {{ candidates = 1 }}"
            )


class SgdSaOptions(TunedOptions, AnnealingOptions, SgdNeighborhood):
    """SGD-SA, Algorithm 2."""

    @model_validator(mode="after")
    def _fit_the_preset(self) -> SgdSaOptions:
        if self.preset is None:
            return self
        if self.strategy != DEFAULT_STRATEGY:
            raise ValueError(
                f"preset = {self.preset!r} needs strategy = {DEFAULT_STRATEGY!r}, the paper's, got "
                f"{self.strategy!r}"
            )
        if self.preset == "paper-code" and self.accept_batch == "next":
            raise ValueError(
                "preset = 'paper-code' measures both losses in evaluation mode, accept_batch = "
                "'next' takes that of the training forward: choose one of the two"
            )
        return self


class AdamwSaOptions(TunedOptions, AdamwNeighborhood):
    """The paper's method around AdamW instead of SGD."""


def _known(key: str, value: str, names: tuple[str, ...], form: str) -> str:
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
