"""Algorithm 1 of the paper for any problem; imports neither torch nor anything third-party."""

from __future__ import annotations

import copy
import math
import random
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from annealtune.annealing import Automatic, Schedule, metropolis
from annealtune.annealing.arguments import count
from annealtune.annealing.temperature import as_schedule

__all__ = ["Annealer", "Problem", "Result"]

S = TypeVar("S")

# The temperature that is planned when none is given: T = unit * 0.4 * (1 - x)^2, x the share of the
# run that is over. Of some forty shapes this was the best compromise on eleven problems: tours
# (reversals, swaps), quadratic assignment, spin glasses, Rastrigin and Rosenbrock. A start of 1 or
# more spends the first part of the run without effect, 0.2 begins frozen on spin glasses. Geometric
# cooling forces a choice between an end that is still warm for a continuous function and one that
# hurries through the temperatures at which a tour takes shape; a square that ends at 0 serves both.
_START, _QUENCH, _PROBES = 0.4, 2.0, 100


class Problem(Protocol[S]):
    """A set of solutions, a neighborhood and a function to be minimized.

    Any class with these three methods is a problem; nothing has to be inherited. A solution (the
    state ``S``) can be any object. Take all randomness from the generator that is passed in:
    then the same seed gives the same trajectory, and a saved search continues it exactly.

    Reference:
        Fischetti and Stringher (2019), Section 2: S, N(s) and f.
    """

    def initial(self, rng: random.Random) -> S:
        """Return an initial solution (Algorithm 1, line 1)."""

    def propose(self, state: S, rng: random.Random) -> S:
        """Return a new tentative solution in the neighborhood of ``state`` (Algorithm 1, line 3).

        It must not modify ``state``: a rejected move leaves the search where it was, and the best
        solution so far is kept without a copy.
        """

    def energy(self, state: S) -> float:
        """Return the value to be minimized; ``math.inf`` marks a solution that is not feasible."""


@dataclass
class Result(Generic[S]):
    """Where a search stands. Counts start at its beginning, over all calls of ``run``.

    Attributes:
        state: the last solution, the output of Algorithm 1.
        energy: its energy.
        best_state: the best solution that was visited.
        best_energy: its energy.
        iterations: how many moves were tried.
        accepted: how many moves were kept.
        improved: how many moves were kept that lowered the energy.
    """

    state: S
    energy: float
    best_state: S
    best_energy: float
    iterations: int = 0
    accepted: int = 0
    improved: int = 0

    @property
    def acceptance_rate(self) -> float:
        """The share of the moves that were kept."""
        return self.accepted / self.iterations if self.iterations else 0.0


class Annealer(Generic[S]):
    r"""Minimize the energy of a problem by simulated annealing.

    .. math:: prob = e^{-worsening / T}, \quad worsening = f(s_{new}) - f(s), \quad T = \alpha T

    All randomness comes from one generator of its own: the problem's methods are handed it, and
    every accept test draws exactly one number from it, needed or not. A tentative energy that is
    NaN or infinite is rejected; from an initial energy of ``math.inf`` any finite one is accepted.
    Between two calls of `run` a search can be copied and pickled: the copy continues it exactly.
    Whoever wants to watch it notes what ``energy`` is asked for; an error raised there ends it.

    Args:
        problem: an object with ``initial(rng)``, ``propose(state, rng)`` and ``energy(state)``.
        temperature: a number is a constant temperature (0 is greedy); a schedule is copied and
            used as it is. None plans one in units of the first worsenings over the length that
            the first ``run`` is given, so that the scale of the energies does not matter.
        seed: the seed of the generator.
        iterations_per_epoch: how many iterations make an epoch, for a schedule that cools per
            epoch.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if an argument breaks its rule, or the clocks do not fit: a schedule that cools
            per epoch needs ``iterations_per_epoch``, every other temperature forbids it.

    Example:
        >>> class NearestInteger:
        ...     def initial(self, rng):
        ...         return rng.randrange(100)
        ...
        ...     def propose(self, state, rng):
        ...         return state + rng.choice([-1, 1])
        ...
        ...     def energy(self, state):
        ...         return abs(state - 41.7)
        >>> Annealer(NearestInteger(), seed=0).run(iterations=1000).state
        42

    Reference:
        Fischetti and Stringher (2019), Section 2, Algorithm 1.
    """

    def __init__(
        self,
        problem: Problem[S],
        *,
        temperature: float | Schedule | None = None,
        seed: int = 0,
        iterations_per_epoch: int | None = None,
    ) -> None:
        if iterations_per_epoch is not None:
            count("Annealer(iterations_per_epoch=...)", iterations_per_epoch, least=1)
        self.problem = problem
        self.iterations_per_epoch = iterations_per_epoch
        self._rng = random.Random(count("Annealer(seed=...)", seed, least=0))
        self._walk: Result[S] | None = None
        self._schedule: Schedule | None = None
        if temperature is not None:
            self._schedule = copy.deepcopy(as_schedule("Annealer", temperature))
        cools_per_epoch = getattr(self._schedule, "per", None) == "epoch"
        if cools_per_epoch != (iterations_per_epoch is not None):
            raise ValueError(
                "Annealer(iterations_per_epoch=...) must be given with a temperature that cools "
                f"per epoch, and left out with others, got {iterations_per_epoch!r} with "
                f"{temperature!r}"
            )

    @property
    def temperature(self) -> float:
        """The temperature of the next accept test; 0 before one is planned."""
        return 0.0 if self._schedule is None else self._schedule.temperature

    def run(self, iterations: int) -> Result[S]:
        """Search for some more iterations.

        A planned temperature keeps the plan of the first call: after its end the search goes on at
        temperature 0. ``run(0)`` returns the present result, after Ctrl-C or an error for instance.

        Args:
            iterations: how many moves are tried.

        Raises:
            TypeError: if ``propose`` has changed the solution that it was given.
            ValueError: if ``iterations`` is negative, or the initial energy is NaN.
        """
        count("Annealer.run(iterations=...)", iterations, least=0)
        if self._walk is None:
            self._walk = self._begin()  # line 1
        if iterations == 0:
            return copy.copy(self._walk)
        if self._schedule is None:
            probes = max(1, min(_PROBES, iterations // 20))  # a short search is not all measuring
            plan = {"start": _START, "end": _START, "quench": _QUENCH}
            self._schedule = Automatic(length=iterations, per="step", probes=probes, **plan)
        for _ in range(iterations):  # line 2
            self._iterate(self._walk, self._schedule)
        return copy.copy(self._walk)

    def _begin(self) -> Result[S]:
        state = self.problem.initial(self._rng)
        energy = float(self.problem.energy(state))
        if math.isnan(energy) or energy == -math.inf:
            raise ValueError(
                "Annealer(problem=...) must start from an energy that is finite, or math.inf "
                f"where the initial solution is not feasible, got {energy!r}"
            )
        return Result(state, energy, best_state=state, best_energy=energy)

    def _iterate(self, walk: Result[S], schedule: Schedule) -> None:
        """Try one move; the marks are the lines of Algorithm 1."""
        tentative = self.problem.propose(walk.state, self._rng)  # 3
        new_energy = float(self.problem.energy(tentative))
        if tentative is walk.state and new_energy != walk.energy:
            _refuse_a_change_in_place(walk.state)
        draw = self._rng.random()
        verdict = metropolis(walk.energy, new_energy, schedule.temperature, draw)  # 4-6
        if verdict.accepted:
            walk.accepted += 1
            walk.improved += new_energy < walk.energy
            walk.state, walk.energy = tentative, new_energy  # 7
            if new_energy < walk.best_energy:
                walk.best_state, walk.best_energy = tentative, new_energy
        walk.iterations += 1
        schedule.observe(verdict.worsening)
        schedule.tick("step")  # 11
        if self.iterations_per_epoch and walk.iterations % self.iterations_per_epoch == 0:
            schedule.tick("epoch")


def _refuse_a_change_in_place(state: object) -> None:
    """Refuse a move that changed the present solution itself: it could not be undone.

    What cannot be changed in place, such as a number, may have an energy that is random.
    """
    if not isinstance(state, int | float | complex | str | bytes | tuple | frozenset):
        raise TypeError(
            "Annealer(problem=...) must return a new solution from propose, got the one it was "
            "given, changed in place: copy it first, change the copy and return that"
        )
