"""What the races have chosen, and the schedule of its rate: warmed up, held, decayed to zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from annealtune.annealing import Setting
from annealtune.annealing.neighborhood import restored
from annealtune.optim.options.group_rates import GroupRates
from annealtune.optim.part import Part

# With a known length: this first part of the run warms up, over this last part the rate decays.
_WARM_UP, _DECAY = 0.05, 0.25
# Steps of the warm-up where the length is not known.
_ANYTIME_WARM_UP = 50


def default_warm_up(total_steps: int | None) -> int:
    """Return how many steps a run of this length warms up.

    Example:
        >>> default_warm_up(2000)
        100
    """
    return _ANYTIME_WARM_UP if total_steps is None else round(_WARM_UP * total_steps)


def share_left(step: int, total_steps: int | None) -> float:
    """Return which share of a held rate the decay has left at a step, counted from 0.

    Example:
        >>> [share_left(step, 8) for step in (0, 6, 7)]
        [1.0, 1.0, 0.5]
    """
    if total_steps is None:
        return 1.0
    return min(1.0, max(total_steps - step, 1) / (_DECAY * total_steps))


def share_of_rate(
    step: int,
    total_steps: int | None,
    *,
    warm_up: int = 0,
    began: int = 0,
) -> float:
    """Return which share of the chosen rate a step is made with.

    Args:
        step: of the run, counted from 0.
        total_steps: of the run; None is unknown, then there is no decay.
        warm_up: steps over which the rate rises linearly to its full value.
        began: the step at which the warm-up begins.

    Example:
        >>> [share_of_rate(step, 8, warm_up=2) for step in (0, 1, 6, 7)]
        [0.5, 1.0, 1.0, 0.5]
    """
    rising = min(1.0, max(step + 1 - began, 1) / warm_up) if warm_up else 1.0
    return rising * share_left(step, total_steps)


class HeldSetting(Part):
    """The setting of every plain step.

    Args:
        rates: writes a rate into the groups.
        total_steps: planned length, None if it is not known.
        warm_up: steps over which the rate rises.

    Attributes:
        setting: None until the races have chosen one.
        steps: calls of ``step`` so far.
        began: the step at which the plain steps began.
    """

    def __init__(self, rates: GroupRates, total_steps: int | None, warm_up: int) -> None:
        self._rates = rates
        self._total_steps = total_steps
        self.warm_up = warm_up
        self.setting: Setting | None = None
        self.steps = 0
        self.began = 0

    def rate(self, share: float) -> float:
        """Return the rate of the next step, where the guard has left this share of it."""
        assert self.setting is not None
        return self._rate_of(self.setting, share)

    def write(self, setting: Setting | None, share: float) -> None:
        """Write all of a setting into every group, at the present rate."""
        assert setting is not None
        self._rates.apply({**setting, "lr": self._rate_of(setting, share)})

    @property
    def share_left(self) -> float:
        """How much of the last quarter of the run is left."""
        return share_left(self.steps, self._total_steps)

    def _rate_of(self, setting: Setting, share: float) -> float:
        scheduled = share_of_rate(
            self.steps,
            self._total_steps,
            warm_up=self.warm_up,
            began=self.began,
        )
        return float(setting["lr"]) * share * scheduled

    def state_dict(self) -> dict[str, Any]:
        """Return the setting, its schedule and the number of steps, and whose they are."""
        return {
            "kind": "SelfTuner",
            "steps": self.steps,
            "held": None if self.setting is None else dict(self.setting),
            "schedule": [self.began, self.warm_up],
        }

    def check(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of an optimizer of another kind."""
        if state.get("kind") != "SelfTuner":
            raise ValueError(
                "SelfTuner.load_state_dict: the state must come from a SelfTuner, got one of "
                f"another kind, with {', '.join(state)}"
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self.steps = state["steps"]
        self.setting = None if state["held"] is None else restored(state["held"])
        self.began, self.warm_up = state["schedule"]
