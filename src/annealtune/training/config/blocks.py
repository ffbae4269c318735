"""The options of the methods, one block a method. Known without importing torch.

From the top: kinds of values, the set H, temperature and strategy, then the blocks themselves.
"""

from __future__ import annotations

import math
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
    Comparing,
    Geometric,
    Neighborhood,
    Reheating,
    Schedule,
    Strategy,
    grid,
    log_range,
    make_strategy,
    takes_temperature,
)
from annealtune.errors import did_you_mean
from annealtune.training.factories import is_factory, split_factory

DEFAULT_STRATEGY = "simulated-annealing"
DEFAULT_HELD_OUT = 0.1
DEFAULT_MOMENTUM = 0.9
# The keys that may be options of H, in the order in which H is built; no block has all of them.
_IN_H = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "betas", "eps", "amsgrad")
_COOLING = ("temperature", "cooling_factor", "cooling_per", "floor", "reheat_every", "reheat_times")
T = TypeVar("T")


class Options(BaseModel):
    """Common to all tables of a config: immutable, no unknown key."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _listed(value: Any) -> Any:
    """Take a single value as a list of one, and a table as values in equal ratios."""
    if not isinstance(value, Mapping):
        return value if _is_list(value) else (value,)
    rule = "must be a value, a list of values or { low = 1e-4, high = 1.0, count = 9 }"
    if value.keys() != {"low", "high", "count"}:
        raise ValueError(f"{rule}, got the keys {', '.join(map(str, value)) or 'none'}")
    try:
        return log_range(value["low"], value["high"], value["count"])
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{rule}: {error}") from None


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _pairs(value: Any) -> Any:
    """Take a single pair as a list of one."""
    return (value,) if _is_list(value) and not any(map(_is_list, value)) else value


def _tables(value: Any) -> Any:
    """Take a single table as a list of one."""
    return (value,) if isinstance(value, Mapping) else value


Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Number = Annotated[float, Field(strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
Factor = Annotated[float, Field(gt=0, lt=1, strict=True)]
BelowOne = Annotated[float, Field(ge=0, lt=1, strict=True)]
Betas = tuple[BelowOne, BelowOne]
Pairs = Annotated[tuple[Betas, ...], BeforeValidator(_pairs)]
Listed = Annotated[tuple[T, ...], BeforeValidator(_listed)]
Tables = Annotated[tuple[T, ...], BeforeValidator(_tables)]
OptimizerName = Literal["adamw", "adam", "nadam", "radam", "rmsprop", "sgd"]
Preset = Annotated[
    Literal["paper-text", "paper-code"] | None,
    Field(description="the paper's settings, as its text states them or as its program ran"),
]


class SgdSetting(Options):
    """One member of H: options of torch.optim.SGD."""

    lr: NotNegative
    momentum: NotNegative | None = None
    dampening: Number | None = None
    weight_decay: NotNegative | None = None
    nesterov: Flag | None = None


class AdamwSetting(Options):
    """One member of H: options of torch.optim.AdamW."""

    lr: NotNegative
    weight_decay: NotNegative | None = None
    betas: Betas | None = None
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
    """The set H: the product of the values of each option, or its members one by one."""

    @model_validator(mode="after")
    def _is_a_neighborhood(self) -> NeighborhoodOptions:
        lists = [name for name in _given(self) if name in self.model_fields_set]
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
        return grid(**_given(self)) if members is None else Neighborhood(map(_given, members))

    def idle(self) -> set[str]:
        """Return the keys whose defaults mean nothing here: written down, they would be given."""
        return set() if self._members() is None else {"lr"}

    def _members(self) -> tuple[Options, ...] | None:
        members: tuple[Options, ...] | None = getattr(self, "settings", None)
        return members


def _given(table: Options) -> dict[str, Any]:
    """Return the options of H that a table sets, in the order in which H is built."""
    values = {name: getattr(table, name, None) for name in _IN_H}
    return {name: value for name, value in values.items() if value is not None}


def is_possible(setting: Mapping[str, Any]) -> bool:
    """Whether torch's SGD takes these options together."""
    nesterov = setting.get("nesterov", False)
    return not nesterov or (setting.get("momentum", 0) > 0 and setting.get("dampening", 0) == 0)


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
        None, description="arguments of the strategy, such as { candidates = 5 } of tabu"
    )

    @field_validator("strategy")
    @classmethod
    def _is_a_strategy(cls, value: str) -> str:
        return _known_name("strategy", value, tuple(STRATEGIES), "package.module:Class")

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
            for key in _COOLING:
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise ValueError(
                        f"{key} = {getattr(self, key)!r}: must be left out with strategy = "
                        f"{self.strategy!r}, which takes no temperature"
                    )
        schedule = self.schedule()
        temperature = Automatic(length=epochs) if schedule is None else schedule
        owner = "strategy"
        try:
            return make_strategy(owner, cls, self.strategy_options or {}, temperature)
        except (TypeError, ValueError, OverflowError) as error:
            told = str(error).removeprefix(f"{owner}(strategy=...): ")
            raise ValueError(f"strategy_options: {told}") from None


def _known_name(key: str, value: str, names: tuple[str, ...], form: str) -> str:
    """Return the value of a key if it is a known name, or has the form of a thing to import."""
    if is_factory(value):
        split_factory(key, value)
    elif value not in names:
        raise ValueError(
            f"must be one of {', '.join(names)} or {form}, got {value!r}"
            f"{did_you_mean(value, names)}"
        )
    return value


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

    accept_on: str = Field(
        "loss", description="what moves are judged by: loss, error or package.module:function"
    )
    accept_batch: Literal["same", "held-out"] = Field(
        "same", description="where: on the minibatch of the gradient, or on held-out samples"
    )
    held_out_fraction: Factor = Field(
        DEFAULT_HELD_OUT,
        description="share of the training part kept apart for accept_batch = held-out",
    )

    @field_validator("accept_on")
    @classmethod
    def _is_an_objective(cls, value: str) -> str:
        return _known_name("accept_on", value, ("loss", "error"), "package.module:function")

    @model_validator(mode="after")
    def _holds_out_for_a_reason(self) -> TunedOptions:
        if self.held_out_fraction != DEFAULT_HELD_OUT and self.accept_batch != "held-out":
            raise ValueError(
                f"held_out_fraction = {self.held_out_fraction} needs accept_batch = 'held-out', "
                f"got {self.accept_batch!r}"
            )
        return self

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
    shrink_below: Share | None = Field(
        None,
        description="divide the radius when fewer moves of an epoch improve; 0 never, "
        "unset never (0.6 with paper-code)",
    )
    shrink_factor: Annotated[float, Field(gt=1, allow_inf_nan=False, strict=True)] = Field(
        10.0, description="what the radius is divided by"
    )
    objective: Literal["loss", "error"] = Field(
        "loss", description="what is minimized: the loss, or one minus the accuracy"
    )

    def make_strategy(self, cls: type, epochs: int) -> Strategy:
        """Make the strategy and check that it only decides."""
        strategy = super().make_strategy(cls, epochs)
        if getattr(strategy, "picks_settings", False) or isinstance(strategy, Comparing):
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
