"""The blocks of the methods that accept moves or undo them. Known without importing torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from annealtune.annealing import STRATEGIES, Comparing, Strategy
from annealtune.errors import ConfigError
from annealtune.training.neighborhood_options import (
    AdamwNeighborhood,
    LoopNeighborhood,
    SgdNeighborhood,
)
from annealtune.training.options import Factor, Options, Rate, Share
from annealtune.training.strategy_options import PresetOptions, StrategyOptions, known_name

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
        return known_name("accept_on", value, ("loss", "error"), "package.module:function")

    @model_validator(mode="after")
    def _holds_out_for_a_reason(self) -> AcceptanceOptions:
        if self.held_out_fraction != DEFAULT_HELD_OUT and self.accept_batch != "held-out":
            raise ValueError(
                f"held_out_fraction = {self.held_out_fraction} needs accept_batch = 'held-out', "
                f"got {self.accept_batch!r}"
            )
        return self


class TunedOptions(AcceptanceOptions, StrategyOptions, LoopNeighborhood):
    """Common to the methods that tune a torch optimizer."""

    def check_run(self, method: str, *, precision: str, augment: str) -> None:
        """Check the options against keys of the run."""
        super().check_run(method, precision=precision, augment=augment)
        if self.accept_batch == "next" and precision == "fp16":
            raise ConfigError(
                f"precision = 'fp16': must be fp32 or bf16 with {method}.accept_batch = 'next', "
                "where the scale of a gradient would change before it is used"
            )

    def make_strategy(self, cls: type, epochs: int) -> Strategy:
        """Make the strategy and check that it fits H and the way in which moves are judged."""
        strategy = super().make_strategy(cls, epochs)
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


class SgdSaOptions(TunedOptions, PresetOptions, SgdNeighborhood):
    """SGD-SA, Algorithm 2."""

    @model_validator(mode="after")
    def _fit_the_preset(self) -> SgdSaOptions:
        if self.preset == "paper-code" and self.accept_batch == "next":
            raise ValueError(
                "preset = 'paper-code' measures both losses in evaluation mode, accept_batch = "
                "'next' takes that of the training forward: choose one of the two"
            )
        return self


class AdamwSaOptions(TunedOptions, AdamwNeighborhood):
    """The paper's method around AdamW instead of SGD."""


class SsaOptions(PresetOptions):
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

    def make_strategy(self, cls: type, epochs: int) -> Strategy:
        """Make the strategy and check that it only decides."""
        strategy = super().make_strategy(cls, epochs)
        if _picks_settings(strategy) or isinstance(strategy, Comparing):
            deciding = (name for name, one in STRATEGIES.items() if not _picks_settings(one))
            raise ValueError(
                f"strategy = {self.strategy!r}: must only decide on moves, as "
                f"{', '.join(deciding)} do: ssa has no H to pick settings from"
            )
        return strategy


def _picks_settings(strategy: object) -> bool:
    return bool(getattr(strategy, "picks_settings", False))
