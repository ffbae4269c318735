"""Quality of `annealtune.search` at equal evaluations, against simanneal and SciPy.

A fixed tour of 50 cities against `simanneal` with its own automatic schedule, then Rastrigin's
function in ten dimensions against `scipy.optimize.dual_annealing`, with and without its local
search. Run ``python benchmarks/search_quality.py``; ``--help`` lists the options.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterable

from annealtune.search import Annealer

SEEDS = range(10)
EVALUATIONS = 200_000


class Tour:
    """The length of a closed tour through fixed random cities in the unit square."""

    def __init__(self, cities: int = 50, seed: int = 0) -> None:
        rng = random.Random(seed)
        places = [(rng.random(), rng.random()) for _ in range(cities)]
        self.distance = [[math.dist(a, b) for b in places] for a in places]
        self.evaluations = 0

    def initial(self, rng: random.Random) -> list[int]:
        return rng.sample(range(len(self.distance)), len(self.distance))

    def propose(self, tour: list[int], rng: random.Random) -> list[int]:
        first, last = sorted(rng.sample(range(len(tour) + 1), 2))
        return tour[:first] + tour[first:last][::-1] + tour[last:]

    def energy(self, tour: list[int]) -> float:
        self.evaluations += 1
        legs = itertools.pairwise([tour[-1], *tour])
        return sum(self.distance[here][there] for here, there in legs)


class Rastrigin:
    """Rastrigin's function on [-5.12, 5.12]^d; its minimum is 0, at the origin."""

    bound = 5.12

    def __init__(self, dimensions: int = 10) -> None:
        self.dimensions = dimensions

    def initial(self, rng: random.Random) -> list[float]:
        return [rng.uniform(-self.bound, self.bound) for _ in range(self.dimensions)]

    def propose(self, point: list[float], rng: random.Random) -> list[float]:
        """Shift one coordinate by a step of a random order of magnitude."""
        moved = list(point)
        axis = rng.randrange(self.dimensions)
        shifted = moved[axis] + rng.gauss(0, 1) * 10 ** rng.uniform(-3, 0.5)
        moved[axis] = min(max(shifted, -self.bound), self.bound)
        return moved

    def energy(self, point: Iterable[float]) -> float:
        return 10 * self.dimensions + sum(x * x - 10 * math.cos(2 * math.pi * x) for x in point)


def anneal(
    problem: Tour | Rastrigin, evaluations: int, seed: int, temperature: float | None = None
) -> float:
    """The best energy that ours finds; as a rule nothing is chosen but the length."""
    annealer = Annealer(problem, temperature=temperature, seed=seed)
    return annealer.run(iterations=evaluations - 1).best_energy


def simanneal_auto(tour: Tour, evaluations: int, seed: int) -> float:
    """The best length that simanneal finds, its schedule found by its own `auto`.

    Same initial tour, same moves, same energy. What `auto` evaluates comes on top of the budget.
    """
    import simanneal

    class Search(simanneal.Annealer):  # type: ignore[misc]
        copy_strategy = "slice"

        def move(self) -> None:
            self.state = tour.propose(self.state, random)  # type: ignore[arg-type]

        def energy(self) -> float:
            return tour.energy(self.state)

        def update(self, *args: object) -> None:
            """Print nothing."""

    handler = signal.getsignal(signal.SIGINT)  # simanneal's constructor replaces it
    before = random.getstate()  # simanneal draws from the module's generator
    try:
        random.seed(seed)
        search = Search(tour.initial(random.Random(seed)))
        search.set_schedule({**search.auto(minutes=1), "steps": evaluations - 1, "updates": 0})
        return float(search.anneal()[1])
    finally:
        random.setstate(before)
        signal.signal(signal.SIGINT, handler)


def dual_annealing(problem: Rastrigin, evaluations: int, seed: int, *, local: bool) -> float:
    """The best value that SciPy finds within the same evaluations."""
    from scipy.optimize import dual_annealing

    spent = 0
    best = math.inf

    def energy(point: Iterable[float]) -> float:
        nonlocal spent, best
        spent += 1
        value = problem.energy(point)
        if spent <= evaluations:  # a local search that has begun may go beyond maxfun
            best = min(best, value)
        return value

    bounds = [(-problem.bound, problem.bound)] * problem.dimensions
    dual_annealing(
        energy,
        bounds,
        maxfun=evaluations,
        maxiter=evaluations,
        no_local_search=not local,
        rng=seed,
    )
    return best


def row(name: str, search: Callable[[int], float], seeds: Iterable[int]) -> list[float]:
    """Run all seeds, print mean, deviation, best, worst and processor time."""
    started = time.process_time()
    values = [search(seed) for seed in seeds]
    seconds = (time.process_time() - started) / len(values)
    mean, deviation = statistics.mean(values), statistics.pstdev(values)
    print(
        f"{name:40} {mean:10.4g} {deviation:10.2g} {min(values):10.4g} {max(values):10.4g} "
        f"{seconds:9.1f}",
        flush=True,
    )
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=EVALUATIONS)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    options = parser.parse_args()
    evaluations, seeds = options.evaluations, range(options.seeds)
    heads = f"{'mean':>10} {'deviation':>10} {'best':>10} {'worst':>10} {'s a run':>9}"

    tour = Tour()
    print(f"{'Tour of 50 cities':40} {heads}")
    row("annealtune", lambda seed: anneal(tour, evaluations, seed), seeds)
    before = tour.evaluations
    row("simanneal, auto", lambda seed: simanneal_auto(tour, evaluations, seed), seeds)
    extra = (tour.evaluations - before) / len(seeds) - evaluations
    print(
        f"({evaluations} evaluations, {len(seeds)} seeds; simanneal's auto: {extra:.0f} on top)\n"
    )

    function = Rastrigin()
    print(f"{'Rastrigin, 10 dimensions':40} {heads}")
    row("annealtune", lambda seed: anneal(function, evaluations, seed), seeds)
    row("annealtune, temperature 0", lambda seed: anneal(function, evaluations, seed, 0), seeds)
    for local, name in ((False, "no local search"), (True, "with local search")):
        row(
            f"scipy dual_annealing, {name}",
            lambda seed, local=local: dual_annealing(function, evaluations, seed, local=local),
            seeds,
        )
    print(f"({evaluations} evaluations, {len(seeds)} seeds; SciPy's local search uses slopes)")


if __name__ == "__main__":
    main()
