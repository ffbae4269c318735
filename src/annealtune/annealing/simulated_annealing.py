"""What a strategy is, and the paper's own: simulated annealing."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from annealtune.annealing.acceptance import Verdict, metropolis
from annealtune.annealing.neighborhood import Neighborhood, Setting
from annealtune.annealing.temperature import Clock, Schedule, as_schedule


class PlainStrategy:
    """What every strategy is: a uniform pick, no memory, and a decision that a subclass adds.

    One step calls ``pick``, ``decide``, ``observe`` and ``tick("step")`` in this order; the end of
    an epoch calls ``tick("epoch")``. All randomness comes from the generator that is passed in; the
    caller owns it, saves it and restores it. What the strategy itself must remember is in
    ``state_dict``, as plain data.

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
        """The temperature of the next decision; NaN for a strategy that has none."""
        return math.nan

    def check(self, neighborhood: Neighborhood) -> None:
        """Raise ValueError if the strategy does not fit H; called once, before the first pick."""

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Choose the setting of the next move: uniformly (Algorithm 2, line 7), with one draw."""
        return neighborhood.pick(rng)

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep or undo the move from ``value`` to ``new_value``; left to the subclass."""
        raise NotImplementedError(
            f"{type(self).__name__} must define decide(value, new_value, rng) and return a Verdict"
        )

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Learn from the verdict on the move with this setting."""

    def tick(self, clock: Clock) -> None:
        """Note the end of a step or of an epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs, as plain data."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


Strategy = PlainStrategy  # where the type of any strategy is meant, not a base to derive from


@runtime_checkable
class Comparing(Protocol):
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


class SimulatedAnnealing(PlainStrategy):
    """The paper's metaheuristic: a uniform pick and the Metropolis rule.

    Every ``pick`` and every ``decide`` draws exactly one number, needed or not, so that two runs
    that differ in a decision still see the same settings afterwards. A temperature of 0 is hill
    climbing, one of ``math.inf`` a random walk.

    Args:
        temperature: a number (constant) or a schedule; a schedule is copied, so one object can
            be given to many runs.

    Example:
        >>> strategy = SimulatedAnnealing(0.0)
        >>> strategy.decide(1.0, 1.1, random.Random(0)).accepted
        False

    Reference:
        Fischetti and Stringher (2019), Section 2 and Algorithms 1 and 2.
    """

    def __init__(self, temperature: float | Schedule) -> None:
        self.schedule = copy.deepcopy(as_schedule(type(self).__name__, temperature))

    @property
    def temperature(self) -> float:
        """The temperature of the next decision."""
        return self.schedule.temperature

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Apply the Metropolis rule (Algorithm 1, lines 4-6; Algorithm 2, lines 10-12)."""
        verdict = metropolis(value, new_value, self.temperature, rng.random())
        self.schedule.observe(verdict.worsening)
        return verdict

    def tick(self, clock: Clock) -> None:
        """Cool, if the schedule follows this clock."""
        self.schedule.tick(clock)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the schedule."""
        return self.schedule.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self.schedule.load_state_dict(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.schedule!r})"
