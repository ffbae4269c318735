"""A genetic algorithm for any problem whose solutions can be crossed."""

from __future__ import annotations

import math
import random
from typing import Any, Generic, NamedTuple, TypeVar

from annealtune.annealing import Verdict
from annealtune.annealing.arguments import count, share
from annealtune.annealing.tournament import tournament
from annealtune.search import generator
from annealtune.search.budget import Budget, Callback, Costs, repeat
from annealtune.search.checks import (
    METHODS,
    check_callback,
    check_problem,
    check_state,
    checked_energy,
    checked_solution,
)
from annealtune.search.problem import Breedable
from annealtune.search.result import IterationInfo, Result, Walk

S = TypeVar("S")

OWNER = "GeneticSearch"


class Member(NamedTuple, Generic[S]):
    """One solution of the population; an energy that is not finite is kept as ``math.inf``."""

    energy: float
    state: S


class GeneticSearch(Generic[S]):
    """Minimize the energy of a problem by breeding a population of its solutions.

    Each generation keeps the ``elite`` best members as they are. Every other place is filled with
    a child: two winners of tournaments are crossed (with probability ``crossover``; otherwise the
    first of them is taken), and the result is mutated by ``problem.propose``. A member whose
    energy is not finite loses every tournament against one whose energy is.

    All randomness comes from one generator of its own, which the problem's methods are handed.

    From the literature: tournament selection, crossover before mutation, elitism. Our choice: every
    child is mutated, because ``propose`` is a small move, and an unchanged child would cost an
    evaluation and tell nothing new.

    Args:
        problem: an object with the methods of `Breedable`: ``initial(rng)``,
            ``propose(state, rng)``, ``energy(state)`` and ``crossover(first, second, rng)``.
        population: the number of solutions, at least 2.
        tournament: how many members compete to be a parent; 1 selects nothing.
        crossover: the probability that a child has two parents.
        elite: how many members survive unchanged, fewer than the population.
        seed: the seed of the generator.
        callback: called with an `IterationInfo` after every generation; the search stops if it
            returns True. ``state`` and ``energy`` are those of the generation's best member, the
            worsening is measured from the best one before it, the temperature is NaN.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if an argument breaks its rule.

    Example:
        >>> class OneMax:
        ...     def initial(self, rng):
        ...         return [rng.randrange(2) for _ in range(20)]
        ...
        ...     def propose(self, state, rng):
        ...         place = rng.randrange(20)
        ...         return [*state[:place], 1 - state[place], *state[place + 1 :]]
        ...
        ...     def crossover(self, first, second, rng):
        ...         return [rng.choice(pair) for pair in zip(first, second)]
        ...
        ...     def energy(self, state):
        ...         return 20 - sum(state)
        >>> GeneticSearch(OneMax(), seed=0).run(iterations=40).best_energy
        0.0

    Reference:
        Holland (1975), Adaptation in Natural and Artificial Systems; Goldberg and Deb (1991) for
        the tournament; De Jong (1975), An analysis of the behavior of a class of genetic adaptive
        systems, for the elite.
    """

    def __init__(
        self,
        problem: Breedable[S],
        *,
        population: int = 32,
        tournament: int = 2,
        crossover: float = 0.9,
        elite: int = 1,
        seed: int = 0,
        callback: Callback[S] | None = None,
    ) -> None:
        check_problem(problem, OWNER, (*METHODS, "crossover"))
        check_callback(callback, OWNER)
        self.problem = problem
        self.population = count(f"{OWNER}(population=...)", population, least=2)
        self.tournament = count(f"{OWNER}(tournament=...)", tournament, least=1)
        self.crossover = share(f"{OWNER}(crossover=...)", crossover)
        self.elite = count(f"{OWNER}(elite=...)", elite, least=0)
        if self.elite >= self.population:
            raise ValueError(
                f"{OWNER}(elite=...) must be smaller than the population, here "
                f"{self.population}, got {elite!r}"
            )
        self.callback = callback
        self._rng = random.Random(count(f"{OWNER}(seed=...)", seed, least=0))
        self._members: list[Member[S]] = []
        self._walk: Walk[S] | None = None

    def run(
        self,
        iterations: int | None = None,
        *,
        evaluations: int | None = None,
        seconds: float | None = None,
    ) -> Result[S]:
        """Breed until the first of the limits is reached; called again, continue.

        Limits count from this call. In the result an iteration is a generation, ``state`` is the
        best member of the last one, and a generation counts as improved if its best member is
        better than the one before; all are accepted, except those without any finite energy.

        Args:
            iterations: stop after this many generations.
            evaluations: stop before the first generation that would exceed this many energies, the
                ones of the first population included.
            seconds: stop before the first generation that would begin after this time.

        Raises:
            TypeError: if a limit is not a number, or a method of the problem returns the wrong
                kind.
            ValueError: if no limit is given or one is out of range.
        """
        costs = Costs(OWNER, initial=self.population, iteration=self.population - self.elite)
        begun = self._walk is not None
        budget = Budget(
            iterations, evaluations=evaluations, seconds=seconds, begun=begun, costs=costs
        )
        walk = self._begin()
        return repeat(lambda: self._breed(walk), walk, budget, self.callback)

    def _breed(self, walk: Walk[S]) -> IterationInfo[S]:
        """Replace the population by the next generation."""
        elite = sorted(self._members, key=lambda member: member.energy)[: self.elite]
        fitness = [-member.energy for member in self._members]
        places = range(self.population - self.elite)
        children = [self._member(self._child(fitness)) for _ in places]
        self._members = [*elite, *children]
        best = self._best()
        verdict = Verdict.of(walk.energy, best.energy, accepted=True)
        if verdict.accepted:
            walk.move_to(best.state, best.energy)
        walk.count_iteration(evaluations=len(children))
        return walk.info(math.nan, best.energy, verdict)

    def _child(self, fitness: list[float]) -> S:
        parent = self._parent(fitness)
        if self._rng.random() < self.crossover:
            crossed = self.problem.crossover(parent, self._parent(fitness), self._rng)
            parent = checked_solution("crossover", crossed, OWNER)
        return checked_solution("propose", self.problem.propose(parent, self._rng), OWNER)

    def _parent(self, fitness: list[float]) -> S:
        return self._members[tournament(fitness, self.tournament, self._rng)].state

    def _member(self, state: S) -> Member[S]:
        energy = checked_energy(self.problem.energy(state), OWNER)
        return Member(energy if math.isfinite(energy) else math.inf, state)

    def _best(self) -> Member[S]:
        return min(self._members, key=lambda member: member.energy)

    def _begin(self) -> Walk[S]:
        if self._walk is None:
            states = [self.problem.initial(self._rng) for _ in range(self.population)]
            self._members = [
                self._member(checked_solution("initial", state, OWNER)) for state in states
            ]
            energy, state = self._best()
            self._walk = Walk(state, energy, state, energy, evaluations=self.population)
        return self._walk

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs to continue the same search.

        Of the same kind as `Annealer.state_dict`, and to be taken between two generations.
        """
        return {
            "walk": None if self._walk is None else dict(vars(self._walk)),
            "rng": generator.saved(self._rng),
            "members": [list(member) for member in self._members],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken, in a search with the same arguments.

        Args:
            state: what ``state_dict`` returned.

        Raises:
            ValueError: if it is something else, or its population was of another size.
        """
        check_state(state, {"walk", "rng", "members"}, OWNER)
        if len(state["members"]) not in (0, self.population):
            raise ValueError(
                f"{OWNER}.load_state_dict(state=...) must come from a population of "
                f"{self.population}, got one of {len(state['members'])}"
            )
        generator.restore(self._rng, state["rng"])
        self._members = [Member(*member) for member in state["members"]]
        self._walk = state["walk"] and Walk(**state["walk"])
