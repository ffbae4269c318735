"""A tour of 60 cities by simulated annealing, with nothing to tune but its length.

Run with ``python examples/travelling_salesman.py``; it takes a few seconds.
"""

import itertools
import math
import random

from annealtune import Annealer


class Tour:
    """Visit every city once and come home; the energy is the length of the way."""

    def __init__(self, places: list[tuple[float, float]]) -> None:
        self.distance = [[math.dist(here, there) for there in places] for here in places]

    def initial(self, rng: random.Random) -> list[int]:
        return rng.sample(range(len(self.distance)), len(self.distance))

    def propose(self, tour: list[int], rng: random.Random) -> list[int]:
        """Travel a random stretch in the opposite direction (2-opt)."""
        first, last = sorted(rng.sample(range(len(tour) + 1), 2))
        return tour[:first] + tour[first:last][::-1] + tour[last:]

    def energy(self, tour: list[int]) -> float:
        legs = itertools.pairwise([tour[-1], *tour])
        return sum(self.distance[here][there] for here, there in legs)


def main() -> None:
    rng = random.Random(0)
    problem = Tour([(rng.random(), rng.random()) for _ in range(60)])

    greedy = Annealer(problem, temperature=0, seed=0).run(iterations=100_000)
    annealer = Annealer(problem, seed=0)
    start = annealer.run(iterations=0)  # where it begins
    annealed = annealer.run(iterations=100_000)

    print(f"random tour               {start.energy:6.2f}")
    print(f"100,000 moves, greedy     {greedy.energy:6.2f}")
    print(f"100,000 moves, annealed   {annealed.energy:6.2f}  (best on the way: ", end="")
    print(f"{annealed.best_energy:.2f}; {annealed.acceptance_rate:.0%} of the moves accepted)")


if __name__ == "__main__":
    main()
