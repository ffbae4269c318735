"""The options of the methods, one block a method. Known without importing torch.

From the top: kinds of values, the set H, temperature and strategy, then the blocks themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from annealtune.annealing import (
    PAPER_RATES,
    STRATEGIES,
    Automatic,
    Neighborhood,
    Strategy,
    grid,
    make_strategy,
    takes_temperature,
)
from annealtune.training.factories import check_name

DEFAULT_STRATEGY = "simulated-annealing"
DEFAULT_MOMENTUM = 0.9
# The keys that may be options of H, in the order in which H is built; no block has all of them.
_IN_H = ("lr", "momentum", "weight_decay", "nesterov")
# Rates of AdamW, a third of a decade apart.
_ADAMW_RATES = tuple(float(f"{10 ** (k / 3 - 4):.12g}") for k in range(7))
T = TypeVar("T")


class Options(BaseModel):
    """Common to all tables of a config: immutable, no unknown key."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _listed(value: Any) -> Any:
    """Take a single value as a list of one."""
    return value if isinstance(value, list | tuple) else (value,)


Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
Factor = Annotated[float, Field(gt=0, lt=1, strict=True)]
BelowOne = Annotated[float, Field(ge=0, lt=1, strict=True)]
Listed = Annotated[tuple[T, ...], BeforeValidator(_listed)]
OptimizerName = Literal["adamw", "adam", "nadam", "radam", "rmsprop", "sgd"]
Preset = Annotated[
    Literal["paper-text", "paper-code"] | None,
    Field(description="the paper's settings, as its text states them or as its program ran"),
]


class SgdKeys(Options):
    """The options of torch.optim.SGD in H."""

    lr: Listed[NotNegative] = Field(PAPER_RATES, description="learning rates in H")
    momentum: Listed[NotNegative] | None = Field(None, description="momenta in H")
    weight_decay: Listed[NotNegative] | None = Field(None, description="weight decays in H")
    nesterov: Listed[Flag] | None = Field(None, description="Nesterov or not, in H")


class AdamwKeys(Options):
    """The options of torch.optim.AdamW in H."""

    lr: Listed[NotNegative] = Field(_ADAMW_RATES, description="learning rates in H")
    weight_decay: Listed[NotNegative] | None = Field(
        None, description="weight decays in H (unset: 0.01)"
    )


class NeighborhoodOptions(Options):
    """The set H: the product of the values of each option."""

    @model_validator(mode="after")
    def _is_a_neighborhood(self) -> NeighborhoodOptions:
        if not any(map(is_possible, self.neighborhood())):
            raise ValueError("nesterov = true needs a momentum above 0 in H")
        return self

    def neighborhood(self) -> Neighborhood:
        """Return H."""
        values = {name: getattr(self, name, None) for name in _IN_H}
        return grid(**{name: value for name, value in values.items() if value is not None})


def is_possible(setting: Mapping[str, Any]) -> bool:
    """Whether torch's SGD takes these options together."""
    return not setting.get("nesterov", False) or setting.get("momentum", 0) > 0


class AnnealingOptions(Options):
    """Common to the methods that accept moves or undo them: the temperature and the strategy."""

    temperature: Annotated[float, Field(ge=0, strict=True)] | None = Field(
        None,
        description="in units of the loss: T0 of a preset, else constant; unset it is automatic",
    )
    strategy: str = Field(
        DEFAULT_STRATEGY, description="the metaheuristic: a built-in one or package.module:Class"
    )
    strategy_options: dict[str, Any] | None = Field(
        None, description="arguments of the strategy, such as { candidates = 5 } of tabu"
    )

    @field_validator("strategy")
    @classmethod
    def _is_a_strategy(cls, value: str) -> str:
        return check_name("strategy", value, STRATEGIES, "package.module:Class")

    @model_validator(mode="after")
    def _fit_together(self) -> AnnealingOptions:
        if self.strategy in STRATEGIES:  # a user's own is imported when the run starts
            self.make_strategy(STRATEGIES[self.strategy], epochs=1)
        preset = getattr(self, "preset", None)
        if preset is not None and self.strategy != DEFAULT_STRATEGY:
            raise ValueError(
                f"preset = {preset!r} needs strategy = {DEFAULT_STRATEGY!r}, the paper's, got "
                f"{self.strategy!r}"
            )
        return self

    def make_strategy(self, cls: type, epochs: int) -> Strategy:
        """Make the strategy and check that it fits the other options.

        Args:
            cls: what ``strategy`` names.
            epochs: length of the run, for a temperature that is not given.

        Raises:
            ValueError: if it refuses its options or a given temperature, or does not fit the rest
                of the block.
        """
        given = self.temperature
        if given is not None and not takes_temperature(cls):
            raise ValueError(
                f"temperature = {given!r}: must be left out with strategy = {self.strategy!r}, "
                "which takes no temperature"
            )
        temperature = Automatic(length=epochs) if given is None else given
        try:
            return make_strategy(cls, self.strategy_options or {}, temperature)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"strategy_options: {error}") from None


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

    accept_on: Literal["loss", "error"] = Field(
        "loss", description="what moves are judged by: the loss, or one minus the accuracy"
    )

    def make_strategy(self, cls: type, epochs: int) -> Strategy:
        """Make the strategy and check that it fits H."""
        strategy = super().make_strategy(cls, epochs)
        strategy.check(Neighborhood(filter(is_possible, self.neighborhood())))
        return strategy


class SgdSaOptions(TunedOptions, SgdKeys):
    """SGD-SA, Algorithm 2."""

    preset: Preset = None


class AdamwSaOptions(TunedOptions, AdamwKeys):
    """The paper's method around AdamW instead of SGD."""


class RandomRateOptions(NeighborhoodOptions, SgdKeys):
    """The ablation: a random setting at every step, every finite move accepted."""


class SsaOptions(AnnealingOptions):
    """SSA, without gradients (Section 2.2)."""

    preset: Preset = None
    radius: Positive = Field(0.01, description="epsilon, the size of a move")
    objective: Literal["loss", "error"] = Field(
        "loss", description="what is minimized: the loss, or one minus the accuracy"
    )

    def make_strategy(self, cls: type, epochs: int) -> Strategy:
        """Make the strategy and check that it only decides."""
        strategy = super().make_strategy(cls, epochs)
        if strategy.picks_settings:
            raise ValueError(
                f"strategy = {self.strategy!r}: must only decide on moves, as {DEFAULT_STRATEGY} "
                "does: ssa has no H to pick settings from"
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


class AdamwOptions(Options):
    """AdamW at a rate that is given: along a cosine to zero, or held as self-tuned does."""

    lr: Positive = Field(1e-3, description="first learning rate")
    weight_decay: NotNegative = Field(0.01, description="weight decay")
    schedule: Literal["cosine", "held"] = Field(
        "cosine",
        description="cosine to zero; or held, decayed over the last quarter and the weights "
        "averaged, all as self-tuned does",
    )
