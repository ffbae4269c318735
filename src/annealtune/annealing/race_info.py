"""The record of a finished race."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from annealtune.annealing.neighborhood import Setting, restored


@dataclasses.dataclass(frozen=True)
class RaceInfo:
    """One race, immutable.

    Attributes:
        step: number of the step at which it began, from 0.
        minibatches: its length.
        settings: the settings of the arms.
        scores: mean losses of the arms over the second half, or the values of an objective; NaN
            for an arm that broke at once.
        dropped: the reason for each arm that was dropped, by its number.
        winner: number of the arm that won; None if all broke.
        reason: why it won.
        rate: the learning rate that was chosen.
        extra_steps: steps that it made in addition to one per minibatch.
        restarted: whether the run went back to its first weights afterwards.
    """

    step: int
    minibatches: int
    settings: tuple[Setting, ...]
    scores: tuple[float, ...]
    dropped: dict[int, str]
    winner: int | None
    reason: str
    rate: float
    extra_steps: int
    restarted: bool

    def __str__(self) -> str:
        won = "no arm was left" if self.winner is None else f"{self.settings[self.winner]} won"
        again = ", from the first weights" if self.restarted else ""
        return (
            f"race at step {self.step}: {len(self.settings)} arms, {self.minibatches} minibatches, "
            f"{won} ({self.reason}); rate {self.rate:.3g}{again}"
        )

    def table(self) -> str:
        """Return the race as text, with one line for each arm."""
        lines = [str(self)]
        for arm, (setting, score) in enumerate(zip(self.settings, self.scores, strict=True)):
            fate = "won" if arm == self.winner else self.dropped.get(arm, "stayed to the end")
            lines.append(f"  {setting!s:<28} score {score:<12.6g} {fate}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for `from_dict`."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**plain, "settings": [dict(s) for s in self.settings], "scores": list(self.scores)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> RaceInfo:
        """Read what `to_dict` returned, also after JSON, where keys are text and NaN is null."""
        found = {
            "settings": tuple(map(restored, plain["settings"])),
            "scores": tuple(math.nan if s is None else s for s in plain["scores"]),
            "dropped": {int(arm): reason for arm, reason in plain["dropped"].items()},
        }
        return cls(**{**plain, **found})
