"""The options of the methods, one block a method. Known without importing torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from annealtune.annealing import STRATEGIES, Comparing, Neighborhood, Strategy
from annealtune.errors import ConfigError

from .annealing import AnnealingOptions, known_name
from .neighborhood import AdamwKeys, NeighborhoodOptions, SgdKeys, is_possible
from .values import BelowOne, Factor, Flag, NotNegative, Options, Positive, Scales, Share

OptimizerName = Literal["adamw", "adam", "nadam", "radam", "rmsprop", "sgd"]
Preset = Annotated[
    Literal["paper-text", "paper-code"] | None,
    Field(description="the paper's settings, as its text states them or as its program ran"),
]
DEFAULT_HELD_OUT = 0.1
DEFAULT_MOMENTUM = 0.9


class SelfTunedOptions(Options):
    """A torch optimizer whose rate is found inside the run."""

    optimizer: OptimizerName = Field("adamw", description="what makes the steps")
    around: Positive | None = Field(
        None, description="the rate in the middle of the first race; unset it is found"
    )
    momentum: BelowOne | None = Field(
        None, description=f"momentum of sgd (unset: {DEFAULT_MOMENTUM})"
    )
    weight_decay: NotNegative | None = Field(
        None, description="weight decay (unset: torch's, 0.01 for adamw, else 0)"
    )
    average: Flag = Field(
        True, description="score and save an average of the last weights, or these themselves"
    )
    scales: Scales = None

    @model_validator(mode="after")
    def _momentum_fits(self) -> SelfTunedOptions:
        if self.momentum is not None and self.optimizer != "sgd":
            raise ValueError(
                f"momentum = {self.momentum} needs optimizer = 'sgd', got {self.optimizer!r}; "
                "leave it out"
            )
        return self

    def arguments(self) -> dict[str, Any]:
        """Return the options that the optimizer is made with."""
        given = {"momentum": self.momentum, "weight_decay": self.weight_decay}
        if self.optimizer == "sgd" and self.momentum is None:
            given["momentum"] = DEFAULT_MOMENTUM
        return {name: value for name, value in given.items() if value is not None}


class TunedOptions(AnnealingOptions, NeighborhoodOptions):
    """Common to the methods that tune a torch optimizer: what the accept test compares."""

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
    def _is_an_objective(cls, value: str) -> str:
        return known_name("accept_on", value, ("loss", "error"), "package.module:function")

    @model_validator(mode="after")
    def _holds_out_for_a_reason(self) -> TunedOptions:
        if self.held_out_fraction != DEFAULT_HELD_OUT and self.accept_batch != "held-out":
            raise ValueError(
                f"held_out_fraction = {self.held_out_fraction} needs accept_batch = 'held-out', "
                f"got {self.accept_batch!r}"
            )
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
        """Make the strategy and check that it fits H and the way in which moves are judged."""
        strategy = super().make_strategy(cls, epochs)
        strategy.check(Neighborhood(filter(is_possible, self.neighborhood())))
        if not isinstance(strategy, Comparing) or strategy.candidates == 1:
            return strategy
        # Several candidates: each must be tried, with the one gradient that there is.
        if self.accept_batch == "next":
            reason = "accept_batch = 'next' tries one"
        elif self.loop_options():
            reason = f"each value of {self.loop_options()[0]} in H needs a gradient of its own"
        else:
            return strategy
        raise ValueError(
            f"strategy = {self.strategy!r} compares {strategy.candidates} candidates a step, but "
            f"{reason}; set strategy_options = {{ candidates = 1 }}"
        )


class SgdSaOptions(TunedOptions, SgdKeys):
    """SGD-SA, Algorithm 2."""

    preset: Preset = None

    @model_validator(mode="after")
    def _preset_fits(self) -> SgdSaOptions:
        if self.preset == "paper-code" and self.accept_batch == "next":
            raise ValueError(
                "preset = 'paper-code' measures both losses in evaluation mode, accept_batch = "
                "'next' takes that of the training forward: choose one of the two"
            )
        return self


class AdamwSaOptions(TunedOptions, AdamwKeys):
    """The paper's method around AdamW instead of SGD."""


class RandomRateOptions(NeighborhoodOptions, SgdKeys):
    """The ablation: a random setting at every step, every finite move accepted."""


class SsaOptions(AnnealingOptions):
    """SSA, without gradients (Section 2.2)."""

    preset: Preset = None
    radius: Positive = Field(0.01, description="epsilon, the size of a move")
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


class SgdOptions(Options):
    """SGD at a constant rate, no momentum."""

    lr: Positive = Field(0.1, description="learning rate")


class ScheduledSgdOptions(Options):
    """The paper's baseline: a rate that is divided at fixed shares of the epochs."""

    lr: Positive = Field(0.1, description="first learning rate")
    factor: Factor = Field(0.1, description="the rate is multiplied by it at every milestone")
    milestones: tuple[Share, ...] = Field((0.3, 0.7), description="shares of the epochs")


class SgdMomentumOptions(Options):
    """SGD with momentum and a cosine to zero."""

    lr: Positive = Field(0.1, description="first learning rate")
    momentum: BelowOne = Field(0.9, description="momentum")
    nesterov: Flag = Field(False, description="Nesterov's form of it")
    weight_decay: NotNegative = Field(5e-4, description="weight decay")

    @model_validator(mode="after")
    def _is_possible(self) -> SgdMomentumOptions:
        if not is_possible(self.model_dump()):
            raise ValueError("nesterov = true needs a momentum above 0")
        return self


class AdamwOptions(Options):
    """AdamW at a rate that is given: along a cosine to zero, or held as self-tuned does."""

    lr: Positive = Field(1e-3, description="first learning rate")
    weight_decay: NotNegative = Field(0.01, description="weight decay")
    schedule: Literal["cosine", "held"] = Field(
        "cosine",
        description="cosine to zero; or held, decayed over the last quarter and the weights "
        "averaged, all as self-tuned does",
    )


def _picks_settings(strategy: object) -> bool:
    return bool(getattr(strategy, "picks_settings", False))
