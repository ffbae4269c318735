"""Hill climbing: a uniform pick, and no worsening is ever kept."""

from __future__ import annotations

import random

from annealtune.annealing.acceptance import Verdict, metropolis
from annealtune.annealing.strategies.protocol import PlainStrategy


class HillClimbing(PlainStrategy):
    r"""Keep a move iff it does not worsen: simulated annealing at :math:`T = 0`.

    From the literature: the rule, the limit of the Metropolis rule for a vanishing temperature.
    Our choice: an equal move is kept, and a decision draws its number like one of simulated
    annealing, so that one seed makes both try the same settings.

    Example:
        >>> strategy = HillClimbing()
        >>> [strategy.decide(1.0, new, random.Random(0)).accepted for new in (0.9, 1.0, 1.1)]
        [True, True, False]

    Reference:
        Aarts and Lenstra (eds., 1997), Local Search in Combinatorial Optimization, Chapter 1:
        iterative improvement.
    """

    @property
    def temperature(self) -> float:
        """Always 0."""
        return 0.0

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep the move iff it does not worsen."""
        return metropolis(value, new_value, self.temperature, rng.random())
