"""What the races of a run are to be: the arguments of a SelfTuner, checked."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.optim import Optimizer

from annealtune.annealing import Neighborhood
from annealtune.annealing.arguments import count, positive
from annealtune.annealing.race import allowance
from annealtune.optim.evaluation.objectives import Objective
from annealtune.optim.held_setting import default_warm_up
from annealtune.optim.options.checks import direction
from annealtune.optim.options.controls import Controls
from annealtune.optim.options.miniature import refuses
from annealtune.optim.parameters import parameters_of

# How far the arms of the races may lie from their centre, and how far from 1 that may be.
_ROOM, _FARTHEST = 16.0, 1e30


@dataclasses.dataclass(frozen=True)
class RacePlan:
    """The arguments of `SelfTuner` that its races depend on.

    Attributes:
        on_host: whether idle arms lie in host memory.
        warm_up: steps over which the rate rises after the race.
        sign: -1 where the loss is maximized.
    """

    total_steps: int | None
    around: float | None
    neighborhood: Neighborhood | None
    objective: Objective | None
    on_host: bool
    warm_up: int
    sign: float

    @classmethod
    def checked(
        cls,
        base: Optimizer,
        total_steps: Any,
        around: Any,
        neighborhood: Any,
        objective: Any,
        offload: Any,
        warmup: Any,
    ) -> RacePlan:
        """Return the plan, before anything has changed.

        Raises:
            TypeError, ValueError: if an argument breaks its rule.
        """
        if total_steps is not None:
            total_steps = count("SelfTuner(total_steps=...)", total_steps, least=1)
        if neighborhood is not None:
            neighborhood = _raceable(base, neighborhood, total_steps)
        if around is not None:
            if neighborhood is not None and "lr" in neighborhood.options:
                raise ValueError(
                    "SelfTuner(around=..., neighborhood=...) must be given one of the two where H "
                    f"sets lr, got around={around!r} too"
                )
            around = positive("SelfTuner(around=...)", around)
            _check_room(base, around)
        if objective is not None and not callable(objective):
            raise TypeError(
                "SelfTuner(objective=...) must be a function without arguments that returns a "
                f"number, got {objective!r}"
            )
        if not isinstance(offload, bool):
            raise ValueError(f"SelfTuner(offload=...) must be True or False, got {offload!r}")
        if warmup is None:
            warmup = default_warm_up(total_steps)
        warmup = count("SelfTuner(warmup=...)", warmup, least=0)
        sign = direction("SelfTuner", base)
        return cls(total_steps, around, neighborhood, objective, offload, warmup, sign)


def _check_room(base: Optimizer, around: float) -> None:
    """Refuse a centre whose arms would have rates that nobody can compute with."""
    largest = {"lr": around * _ROOM}
    refused = any(refuses(base, group, largest) for group in base.param_groups)
    if refused or not 1 / _FARTHEST <= around <= _FARTHEST:
        kinds = {str(p.dtype).removeprefix("torch.") for p in parameters_of(base)}
        raise ValueError(
            f"SelfTuner(around=...) must leave room for rates that are {_ROOM:g} times as large or "
            f"as small, got {around!r} for weights in {', '.join(sorted(kinds))}"
        )


def _raceable(base: Optimizer, neighborhood: Any, total_steps: int | None) -> Neighborhood:
    """Return the H that was given, if there is a race that fits it."""
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
