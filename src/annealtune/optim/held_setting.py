"""What the races have chosen: held, then decayed to nothing at the end of a planned run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from annealtune.annealing import Setting
from annealtune.annealing.neighborhood import restored
from annealtune.optim.options.group_rates import GroupRates
from annealtune.optim.part import Part

# With a known length the rate is held and falls to nothing over this last part of the run.
_DECAY = 0.25


def share_of_rate(step: int, total_steps: int) -> float:
    """Return which share of a held rate a step is made with, counted from 0.

    Example:
        >>> [share_of_rate(step, 8) for step in (0, 6, 7)]
        [1.0, 1.0, 0.5]
    """
    return min(1.0, max(total_steps - step, 1) / (_DECAY * total_steps))


class HeldSetting(Part):
    """The setting of every plain step.

    Attributes:
        setting: None until the races have chosen one.
        steps: calls of ``step`` so far.
    """

    def __init__(self, rates: GroupRates, total_steps: int | None) -> None:
        self._rates = rates
        self._total_steps = total_steps
        self.setting: Setting | None = None
        self.steps = 0

    def rate(self, share: float) -> float:
        """Return the rate of the next step, where the guard has left this share of it."""
        assert self.setting is not None
        return self._rate_of(self.setting, share)

    def write(self, setting: Setting | None, share: float) -> None:
        """Write all of a setting into every group, at the present rate."""
        assert setting is not None
        self._rates.apply({**setting, "lr": self._rate_of(setting, share)})

    def _rate_of(self, setting: Setting, share: float) -> float:
        rate = float(setting["lr"]) * share
        if self._total_steps is None:
            return rate
        return rate * share_of_rate(self.steps, self._total_steps)

    def state_dict(self) -> dict[str, Any]:
        """Return the setting and the number of steps, and whose they are."""
        held = None if self.setting is None else dict(self.setting)
        return {"kind": "SelfTuner", "steps": self.steps, "held": held}

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
