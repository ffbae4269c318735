"""Tournament selection: who may breed in a genetic algorithm."""

from __future__ import annotations

import random
from collections.abc import Sequence


def tournament(fitness: Sequence[float], size: int, rng: random.Random) -> int:
    """Return the place of the fittest of ``size`` members that are drawn with replacement.

    Exactly ``size`` numbers are drawn. A tournament of one draws a member whatever its fitness.

    Args:
        fitness: the fitness of every member of the population, high is good; ``-math.inf`` loses
            against everything else. It must not be NaN.
        size: how many members compete; the first that was drawn wins a draw.
        rng: the generator.

    Example:
        >>> wins = [tournament([0.0, 3.0, 1.0], 2, random.Random(seed)) for seed in range(900)]
        >>> [wins.count(place) for place in range(3)]
        [86, 514, 300]

    Reference:
        Goldberg and Deb (1991), A comparative analysis of selection schemes used in genetic
        algorithms, Foundations of Genetic Algorithms 1, 69-93.
    """
    drawn = [int(rng.random() * len(fitness)) for _ in range(size)]
    return max(drawn, key=fitness.__getitem__)
