"""The block of the method that finds its rate by races. Known without importing torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from annealtune.training.neighborhood_options import Scales
from annealtune.training.options import BelowOne, Decay, Flag, Options, Rate

OptimizerName = Literal["adamw", "adam", "nadam", "radam", "rmsprop", "sgd"]
DEFAULT_MOMENTUM = 0.9


class SelfTunedOptions(Options):
    """A torch optimizer whose rate is found inside the run."""

    optimizer: OptimizerName = Field("adamw", description="what makes the steps")
    around: Rate | None = Field(
        None, description="the rate in the middle of the first race; unset it is found"
    )
    momentum: BelowOne | None = Field(
        None, description=f"momentum of sgd (unset: {DEFAULT_MOMENTUM})"
    )
    weight_decay: Decay | None = Field(
        None, description="weight decay (unset: torch's, 0.01 for adamw, else 0)"
    )
    average: Flag = Field(
        True, description="score and save an average of the last weights, or these themselves"
    )
    scales: Scales | None = Field(
        None,
        description="factors of the rate by the start of a parameter's name: { features = 0.5 }",
    )

    @model_validator(mode="after")
    def _momentum_fits(self) -> SelfTunedOptions:
        if self.momentum is not None and self.optimizer != "sgd":
            raise ValueError(
                f"momentum = {self.momentum} needs optimizer = 'sgd', got {self.optimizer!r}; "
                "leave it out"
            )
        return self

    def arguments(self) -> dict[str, float]:
        """Return the options that the optimizer is made with."""
        given = {"momentum": self.momentum, "weight_decay": self.weight_decay}
        if self.optimizer == "sgd" and self.momentum is None:
            given["momentum"] = DEFAULT_MOMENTUM
        return {name: value for name, value in given.items() if value is not None}
