"""Simulated annealing: a uniform pick and the Metropolis rule at a cooling temperature."""

from __future__ import annotations

import copy
import random
from typing import Any

from annealtune.annealing.acceptance import Verdict, metropolis
from annealtune.annealing.strategies.protocol import PlainStrategy
from annealtune.annealing.temperature import Clock, Schedule, as_schedule


class SimulatedAnnealing(PlainStrategy):
    """The paper's metaheuristic.

    Every ``pick`` and every ``decide`` draws exactly one number, needed or not, so that two runs
    that differ in a decision still see the same settings afterwards.

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
