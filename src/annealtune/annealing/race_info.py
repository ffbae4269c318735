"""What is told of a race that is over."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from annealtune.annealing.neighborhood import Setting
from annealtune.annealing.strategies.stored_settings import restored


@dataclasses.dataclass(frozen=True)
class RaceInfo:
    """One race, immutable.

    Attributes:
        step: number of the step at which it began, from 0.
        minibatches: how many it lasted.
        settings: of the arms.
        scores: mean losses of the arms over the second half, or what an objective judged; NaN for
            an arm that broke at once.
        dropped: why an arm was dropped, by its number.
        winner: number of the arm that won; None where all broke.
        reason: why it won.
        rate: the learning rate that was chosen.
        extra_steps: steps that it made besides one a minibatch.
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
        """Return it with a line for each arm."""
        lines = [str(self)]
        for arm, (setting, score) in enumerate(zip(self.settings, self.scores, strict=True)):
            fate = "won" if arm == self.winner else self.dropped.get(arm, "stayed to the end")
            lines.append(f"  {setting!s:<28} score {score:<12.6g} {fate}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, from which `from_dict` makes it again."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**plain, "settings": [dict(s) for s in self.settings], "scores": list(self.scores)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> RaceInfo:
        """Make it again from plain data, also from JSON, where keys are text and NaN is null."""
        found = {
            "settings": tuple(map(restored, plain["settings"])),
            "scores": tuple(math.nan if s is None else s for s in plain["scores"]),
            "dropped": {int(arm): reason for arm, reason in plain["dropped"].items()},
        }
        return cls(**{**plain, **found})
