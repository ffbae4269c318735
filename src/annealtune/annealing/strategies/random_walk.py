"""Random walk: a uniform pick, and every finite value is kept."""

from __future__ import annotations

import math
import random

from annealtune.annealing.acceptance import Verdict, metropolis
from annealtune.annealing.strategies.protocol import PlainStrategy


class RandomWalk(PlainStrategy):
    r"""Keep every move to a finite value: simulated annealing at :math:`T = \infty`.

    This is the ablation: what remains of a method when its accept test is taken away. From the
    literature: the rule, the limit of the Metropolis rule for a growing temperature. Our choice:
    a value that is not finite is still rejected, since nothing leads back from it, and a
    decision draws its number like one of simulated annealing, so that one seed makes both try the
    same settings.

    Example:
        >>> strategy = RandomWalk()
        >>> [strategy.decide(1.0, new, random.Random(0)).accepted for new in (9e9, math.inf)]
        [True, False]

    Reference:
        Aarts and Korst (1989), Simulated Annealing and Boltzmann Machines, Chapter 2: at a large
        control parameter all proposed transitions are accepted.
    """

    @property
    def temperature(self) -> float:
        """Always infinity."""
        return math.inf

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep the move iff the new value is finite."""
        return metropolis(value, new_value, self.temperature, rng.random())
