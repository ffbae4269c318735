"""Rastrigin's function in ten dimensions: about 10^10 local minima, the lowest is 0 at the origin.

Run with ``python examples/continuous_function.py``; it takes a few seconds.
"""

import math
import random
import statistics

from annealtune import Annealer
from annealtune.temperatures import Geometric, Reheating


class Rastrigin:
    def initial(self, rng: random.Random) -> list[float]:
        return [rng.uniform(-5.12, 5.12) for _ in range(10)]

    def propose(self, point: list[float], rng: random.Random) -> list[float]:
        """Shift one coordinate a little; the next local minimum is about 1 away."""
        moved = list(point)
        moved[rng.randrange(len(moved))] += rng.gauss(0, 0.3)
        return moved

    def energy(self, point: list[float]) -> float:
        if max(map(abs, point)) > 5.12:
            return math.inf  # not feasible
        return sum(10 + x * x - 10 * math.cos(2 * math.pi * x) for x in point)


TEMPERATURES = {
    "greedy": 0,
    "planned (the default)": None,
    "geometric": Geometric(10, 0.9998, per="step"),
    "geometric, reheated twice": Reheating(
        Geometric(10, 0.9995, per="step"), every=10_000, times=2
    ),
}


def main() -> None:
    print(f"{'30,000 moves, 5 seeds':28} {'mean of the best':>17} {'worst':>9}")
    for name, temperature in TEMPERATURES.items():
        searches = [Annealer(Rastrigin(), temperature=temperature, seed=s) for s in range(5)]
        best = [search.run(iterations=30_000).best_energy for search in searches]
        print(f"{name:28} {statistics.mean(best):17.5f} {max(best):9.5f}")


if __name__ == "__main__":
    main()
