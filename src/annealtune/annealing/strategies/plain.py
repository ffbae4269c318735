"""Everything of a strategy but the decision: what the simple ones share and users derive from."""

from __future__ import annotations

import math
import random
from typing import Any, ClassVar

from annealtune.annealing.acceptance import Verdict
from annealtune.annealing.neighborhood import Neighborhood, Setting
from annealtune.annealing.temperature import Clock


class PlainStrategy:
    """A uniform pick and no memory; a subclass adds ``decide`` and whatever else it needs.

    Attributes:
        picks_settings: whether the choice among the settings of H is a part of the method. Such a
            strategy says nothing about a problem that proposes its own moves (`annealtune.search`).

    Example:
        >>> class SmallWorsenings(PlainStrategy):
        ...     def decide(self, value, new_value, rng):
        ...         worsening = new_value - value
        ...         return Verdict.of(value, new_value, accepted=worsening < 0.01)
        >>> SmallWorsenings().decide(1.0, 1.001, random.Random(0)).accepted
        True
    """

    picks_settings: ClassVar[bool] = False

    @property
    def temperature(self) -> float:
        """NaN: there is none."""
        return math.nan

    def check(self, neighborhood: Neighborhood) -> None:
        """Accept every H."""

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Pick a setting uniformly (Algorithm 2, line 7), with exactly one draw."""
        return neighborhood.pick(rng)

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep or undo the move from ``value`` to ``new_value``; left to the subclass."""
        raise NotImplementedError(
            f"{type(self).__name__} must define decide(value, new_value, rng) and return a Verdict"
        )

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Learn nothing."""

    def tick(self, clock: Clock) -> None:
        """Ignore the time."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: there is no memory."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
