"""Who wins a tournament."""

import collections
import math
import random

import pytest

from annealtune.annealing.tournament import tournament


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_rank_wins_as_often_as_it_should(size):
    # The best of n drawn with replacement has rank r (of 4) with probability (r^n - (r-1)^n) / 4^n.
    fitness, rng, draws = [3.0, -math.inf, 7.0, 5.0], random.Random(0), 4000
    wins = collections.Counter(tournament(fitness, size, rng) for _ in range(draws))
    for rank, place in enumerate([1, 0, 3, 2], start=1):
        share = (rank**size - (rank - 1) ** size) / 4**size
        assert abs(wins[place] - draws * share) < 5 * math.sqrt(draws * share * (1 - share))


def test_among_equals_the_first_that_is_drawn_wins():
    for seed in range(20):
        first = int(random.Random(seed).random() * 3)
        assert tournament([-math.inf] * 3, 5, random.Random(seed)) == first
