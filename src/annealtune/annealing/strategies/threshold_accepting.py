"""Threshold accepting: a uniform pick, and every worsening up to a falling threshold is kept."""

from __future__ import annotations

import random
from typing import Any

from annealtune.annealing.acceptance import Verdict
from annealtune.annealing.strategies.simulated_annealing import SimulatedAnnealing


class ThresholdAccepting(SimulatedAnnealing):
    r"""Simulated annealing without chance: keep a move iff :math:`worsening \le T`.

    From the literature: the rule, and a threshold that is lowered in the course of the search.
    Our choice: the threshold follows the same schedules as a temperature, so that it can fall
    geometrically, be restored or be measured in units of the worsenings that occur; Dueck and
    Scheuer lower it by hand-made steps. A decision draws a number that it does not need, so that
    one seed makes it try the same settings as simulated annealing.

    Args:
        temperature: the threshold, a number (constant) or a schedule; a schedule is copied.

    Raises:
        TypeError: if the threshold is neither.
        ValueError: if it is negative or NaN.

    Example:
        >>> strategy = ThresholdAccepting(0.5)
        >>> [strategy.decide(1.0, new, random.Random(0)).accepted for new in (1.5, 1.75)]
        [True, False]

    Reference:
        Dueck and Scheuer (1990), Threshold accepting: a general purpose optimization algorithm
        appearing superior to simulated annealing, Journal of Computational Physics 90, 161-175.
    """

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep the move iff it worsens by no more than the threshold."""
        rng.random()  # keeps the draws of later picks in step
        accepted = new_value - value <= self.temperature
        verdict = Verdict.of(value, new_value, accepted=accepted)
        self.schedule.observe(verdict.worsening)
        return verdict

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the schedule, under a name that tells it from a temperature's."""
        return {"threshold": super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        super().load_state_dict(state["threshold"])
