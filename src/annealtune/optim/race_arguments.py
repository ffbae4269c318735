"""The arguments of a tuner that races, checked before anything has changed."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from annealtune.annealing import Neighborhood
from annealtune.annealing.arguments import count, positive
from annealtune.annealing.race import allowance
from annealtune.optim.controls import Controls
from annealtune.optim.race import Objective


def checked_neighborhood(
    base: Optimizer, neighborhood: Any, total_steps: int | None
) -> Neighborhood | None:
    """Return the H that was given, if there is a race that fits it."""
    if neighborhood is None:
        return None
    fitting = Controls("SelfTuner", base, None, None).fit(neighborhood)
    if len(fitting) < 2:
        raise ValueError(
            f"SelfTuner(neighborhood=...) must hold at least two settings that "
            f"{type(base).__name__} takes, for a race needs two arms, got {fitting!r}"
        )
    if not allowance(total_steps).fits(len(fitting)):
        raise ValueError(
            f"SelfTuner(total_steps={total_steps}, neighborhood=...): a race of {len(fitting)} "
            "settings must fit into the run, but would make more extra steps than it allows; take "
            "fewer settings or more steps"
        )
    return fitting


def checked_centre(around: Any, neighborhood: Neighborhood | None) -> float:
    """Return the centre of the first race, where no H has rates of its own."""
    if neighborhood is not None and "lr" in neighborhood.options:
        raise ValueError(
            "SelfTuner(around=..., neighborhood=...) must be given one of the two where H sets lr, "
            f"got around={around!r} too"
        )
    return positive("SelfTuner(around=...)", around)


def checked_model(model: Any) -> nn.Module | None:
    """Return a module, or None."""
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(f"SelfTuner(model=...) must be a torch.nn.Module, got {model!r}")
    return model


def checked_length(total_steps: Any) -> int:
    """Return the planned number of steps."""
    return count("SelfTuner(total_steps=...)", total_steps, least=1)


def checked_objective(objective: Any) -> Objective | None:
    """Return a function, or None."""
    if objective is not None and not callable(objective):
        raise TypeError(
            "SelfTuner(objective=...) must be a function without arguments that returns a number, "
            f"got {objective!r}"
        )
    checked: Objective | None = objective
    return checked


def is_on_host(idle: Any) -> bool:
    """Tell whether idle arms lie in host memory."""
    if idle not in ("device", "host"):
        raise ValueError(f"SelfTuner(idle=...) must be 'device' or 'host', got {idle!r}")
    return bool(idle == "host")
