"""A genetic algorithm over H: settings breed by what they gained."""

from __future__ import annotations

import math
import random
from typing import Any

from annealtune.annealing.acceptance import Verdict
from annealtune.annealing.arguments import count, share
from annealtune.annealing.neighborhood import Neighborhood, Setting, restored
from annealtune.annealing.strategies.simulated_annealing import SimulatedAnnealing
from annealtune.annealing.temperature import Schedule
from annealtune.annealing.tournament import tournament


class Genetic(SimulatedAnnealing):
    r"""Breed a population of settings on their measured gain; keep moves by the Metropolis rule.

    .. math:: fitness = \frac{1}{trials} \sum (value - new\_value)

    Each generation tries every member ``trials`` times, taking turns, so that all are measured at
    the same stage of the run. Then the fittest survives, and the other places are filled with
    children: two winners of tournaments, for each option the value of the one or the other, and
    with some probability a mutation, which moves one option to a neighboring value. A child that is
    not in H, because H is not a full grid, is replaced by its fitter parent. A new value that is
    not finite makes the fitness of its member ``-inf``: it loses every tournament.

    From the literature: a population, tournament selection, uniform crossover, mutation and
    elitism. Our choice: the members are settings, measured by the gains of the moves that the run
    makes anyway; the moves are kept or undone as by simulated annealing; a mutation goes to a
    neighbor in the sorted values of H, to any other value if they cannot be sorted.

    Args:
        temperature: a number (constant) or a schedule, for the accept test; a schedule is copied.
        population: the number of members, at least 2; if H is smaller, some settings occur twice.
        trials: how often each is tried in a generation.
        tournament: how many members compete to be a parent; 1 selects nothing.
        mutation: the probability that a child is mutated.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if an argument breaks its rule.

    Example:
        >>> from annealtune.annealing import grid
        >>> strategy, rng = Genetic(0.0, population=4, trials=1), random.Random(0)
        >>> neighborhood = grid(lr=[0.1, 0.2, 0.3, 0.4])
        >>> for _ in range(40):  # where the largest rate gains the most
        ...     setting = strategy.pick(neighborhood, rng)
        ...     strategy.observe(setting, strategy.decide(1.0, 1.0 - setting["lr"], rng))
        >>> strategy.members[0]
        Setting(lr=0.4)

    Reference:
        Holland (1975), Adaptation in Natural and Artificial Systems; Goldberg and Deb (1991) for
        the tournament; Syswerda (1989), Uniform crossover in genetic algorithms, Proceedings of
        the Third International Conference on Genetic Algorithms, 2-9.
    """

    picks_settings = True

    def __init__(
        self,
        temperature: float | Schedule,
        population: int = 8,
        trials: int = 4,
        tournament: int = 2,
        mutation: float = 0.2,
    ) -> None:
        super().__init__(temperature)
        self.population = count("Genetic(population=...)", population, least=2)
        self.trials = count("Genetic(trials=...)", trials, least=1)
        self.tournament = count("Genetic(tournament=...)", tournament, least=1)
        self.mutation = share("Genetic(mutation=...)", mutation)
        self._members: list[Setting] = []
        self._gains: list[float] = []  # of each member in this generation, summed up
        self._tried = 0  # in this generation, by all members

    @property
    def members(self) -> tuple[Setting, ...]:
        """The present generation, first the survivor of the one before; none before a pick."""
        return tuple(self._members)

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Return the next member; before the first of a generation, breed that generation."""
        if not self._members:
            self._start_generation(self._first_members(neighborhood, rng))
        elif self._tried == self.population * self.trials:
            self._start_generation(self._bred(neighborhood, rng))
        return self._members[self._tried % self.population]

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Credit the member with what its move gained, kept or not."""
        gain = -verdict.worsening if math.isfinite(verdict.worsening) else -math.inf
        self._gains[self._tried % self.population] += gain
        self._tried += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the schedule, the members and what they gained."""
        return {
            "schedule": super().state_dict(),
            "members": [dict(setting) for setting in self._members],
            "gains": list(self._gains),
            "tried": self._tried,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken.

        Raises:
            ValueError: if the population was of another size.
        """
        members = [restored(options) for options in state["members"]]
        if len(members) not in (0, self.population):
            raise ValueError(
                f"Genetic.load_state_dict: the state must come from a population of "
                f"{self.population}, got one of {len(members)}"
            )
        super().load_state_dict(state["schedule"])
        self._members = members
        self._gains = list(state["gains"])
        self._tried = state["tried"]

    def __repr__(self) -> str:
        return (
            f"Genetic({self.schedule!r}, population={self.population!r}, trials={self.trials!r}, "
            f"tournament={self.tournament!r}, mutation={self.mutation!r})"
        )

    def _start_generation(self, members: list[Setting]) -> None:
        self._members = members
        self._gains = [0.0] * len(members)
        self._tried = 0

    def _first_members(self, neighborhood: Neighborhood, rng: random.Random) -> list[Setting]:
        """Draw without replacement; start again with all of H when it is used up."""
        members: list[Setting] = []
        while len(members) < self.population:
            wanted = min(self.population - len(members), len(neighborhood))
            members += rng.sample(neighborhood, wanted)
        return members

    def _bred(self, neighborhood: Neighborhood, rng: random.Random) -> list[Setting]:
        """Return the next generation. Sums of gains rank as their means do: trials are equal."""
        survivor = self._members[self._gains.index(max(self._gains))]
        children = [self._child(neighborhood, rng) for _ in range(self.population - 1)]
        return [survivor, *children]

    def _child(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        one, other = (tournament(self._gains, self.tournament, rng) for _ in range(2))
        parents = self._members[one], self._members[other]
        options = {name: parents[rng.random() < 0.5][name] for name in neighborhood.options}
        if rng.random() < self.mutation:
            _mutate(options, neighborhood, rng)
        child = Setting(options)
        if child in neighborhood:
            return child
        return parents[self._gains[other] > self._gains[one]]


def _mutate(options: dict[str, Any], neighborhood: Neighborhood, rng: random.Random) -> None:
    """Move one option to a neighboring value, where it has more than one."""
    values = {
        name: list(dict.fromkeys(setting[name] for setting in neighborhood)) for name in options
    }
    mutable = [name for name in options if len(values[name]) > 1]
    if not mutable:
        return
    name = _one_of(mutable, rng)
    options[name] = _one_of(_next_to(options[name], values[name]), rng)


def _one_of(values: list[Any], rng: random.Random) -> Any:
    return values[int(rng.random() * len(values))]


def _next_to(value: Any, values: list[Any]) -> list[Any]:
    try:
        ordered = sorted(values)
    except TypeError:  # None among numbers, for instance: all others are equally near
        return [other for other in values if other != value]
    place = ordered.index(value)
    return [ordered[near] for near in (place - 1, place + 1) if 0 <= near < len(ordered)]
