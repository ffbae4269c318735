"""What a strategy must offer to run inside the optimizers and the search, and a start for one."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from annealtune.annealing.acceptance import Verdict
from annealtune.annealing.neighborhood import Neighborhood, Setting
from annealtune.annealing.temperature import Clock


@runtime_checkable
class Strategy(Protocol):
    """Pick a move, decide on it, learn from it, and follow the clock.

    One step calls ``pick``, ``decide``, ``observe`` and ``tick("step")`` in this order; the end of
    an epoch calls ``tick("epoch")``. All randomness comes from the generator that is passed in; the
    caller owns it, saves it and restores it. What the strategy itself must remember is in
    ``state_dict``, as plain data. `PlainStrategy` has everything except the decision: derive from
    it.
    """

    @property
    def temperature(self) -> float:
        """The temperature of the next decision (NaN for a strategy that has none)."""

    def check(self, neighborhood: Neighborhood) -> None:
        """Raise ValueError if the strategy does not fit H; called once, before the first pick."""

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Choose the setting of the next move."""

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep or undo the move from ``value`` to ``new_value``."""

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Learn from the verdict on the move with this setting."""

    def tick(self, clock: Clock) -> None:
        """Note the end of a step or of an epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs, as plain data."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""


@runtime_checkable
class Comparing(Strategy, Protocol):
    """A strategy that measures several candidates before it moves; each costs one evaluation.

    If ``candidates`` is 1, ``pick`` is called as for any other strategy. Otherwise a step calls
    ``shortlist``, measures every setting on it from the same point, calls ``select`` and then
    ``decide`` and ``observe`` for the one that was selected.
    """

    @property
    def candidates(self) -> int:
        """How many settings are measured in each step."""

    def shortlist(self, neighborhood: Neighborhood, rng: random.Random) -> tuple[Setting, ...]:
        """Choose the different settings to measure."""

    def select(self, value: float, measured: Mapping[Setting, float]) -> Setting:
        """Choose the move among them, by the values from ``value`` that they lead to."""


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
        """NaN: the strategy has no temperature."""
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
        """Ignore the clock."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: there is no memory."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
