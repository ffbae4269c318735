"""Algorithm 1 of the paper for any problem; imports neither torch nor anything third-party."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from annealtune.annealing import Automatic, Schedule, metropolis
from annealtune.annealing.arguments import count
from annealtune.annealing.temperature import as_schedule

__all__ = ["Annealer", "IterationInfo", "Problem", "Result"]

S = TypeVar("S")

# The temperature that is planned when none is given: T = unit * 0.4 * (1 - x)^2, x the share of the
# run that is over. Of some forty shapes this was the best compromise on eleven problems: tours
# (reversals, swaps), quadratic assignment, spin glasses, Rastrigin and Rosenbrock. A start of 1 or
# more spends the first part of the run without effect, 0.2 begins frozen on spin glasses. Geometric
# cooling forces a choice between an end that is still warm for a continuous function and one that
# hurries through the temperatures at which a tour takes shape; a square that ends at 0 serves both.
_START, _QUENCH, _PROBES = 0.4, 2.0, 100


@runtime_checkable
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


class IterationInfo(NamedTuple, Generic[S]):
    """One iteration as the callback sees it, after the verdict and the cooling.

    Attributes:
        iteration: how many iterations are done, this one included.
        temperature: the temperature of the accept test.
        state: the solution after the verdict.
        energy: its energy.
        new_energy: the energy of the tentative solution.
        worsening: energy of the tentative solution minus energy before it; positive is worse.
        accept_probability: the probability with which such a move is kept, clipped to 1.
        accepted: whether this one was kept.
        best_energy: the lowest energy so far.
    """

    iteration: int
    temperature: float
    state: S
    energy: float
    new_energy: float
    worsening: float
    accept_probability: float
    accepted: bool
    best_energy: float


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

    def _move_to(self, state: S, energy: float) -> None:
        """Make an accepted solution the current one."""
        self.accepted += 1
        self.improved += energy < self.energy
        self.state, self.energy = state, energy
        if energy < self.best_energy:
            self.best_state, self.best_energy = state, energy


class Annealer(Generic[S]):
    r"""Minimize the energy of a problem by simulated annealing.

    .. math:: prob = e^{-worsening / T}, \quad worsening = f(s_{new}) - f(s), \quad T = \alpha T

    All randomness comes from one generator of its own: the problem's methods are handed it, and
    every accept test draws exactly one number from it, needed or not. A tentative energy that is
    NaN or infinite is rejected; from an initial energy of ``math.inf`` any finite one is accepted.

    Args:
        problem: an object with ``initial(rng)``, ``propose(state, rng)`` and ``energy(state)``.
        temperature: a number is a constant temperature (0 is greedy); a schedule is copied and
            used as it is. None plans one in units of the first worsenings over the length that
            the first ``run`` is given, so that the scale of the energies does not matter.
        seed: the seed of the generator.
        iterations_per_epoch: how many iterations make an epoch, for a schedule that cools per
            epoch.
        callback: called with an `IterationInfo` after every iteration; the search stops if it
            returns True. ``state_dict`` may be called from it.

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
        callback: Callable[[IterationInfo[S]], bool | None] | None = None,
    ) -> None:
        if isinstance(problem, type) or not isinstance(problem, Problem):
            raise TypeError(
                "Annealer(problem=...) must be an object with the methods initial, propose and "
                f"energy, got {problem!r}"
            )
        if iterations_per_epoch is not None:
            count("Annealer(iterations_per_epoch=...)", iterations_per_epoch, least=1)
        self.problem = problem
        self.callback = callback
        self.iterations_per_epoch = iterations_per_epoch
        self._rng = random.Random(count("Annealer(seed=...)", seed, least=0))
        self._walk: Result[S] | None = None
        self._schedule: Schedule | None = None
        self._planned_for: int | None = None  # how many iterations, where the temperature is ours
        if temperature is not None:
            self._schedule = copy.deepcopy(as_schedule("Annealer", temperature))
        cools_per_epoch = getattr(self._schedule, "per", None) == "epoch"
        if cools_per_epoch != (iterations_per_epoch is not None):
            raise ValueError(
                "Annealer(iterations_per_epoch=...) must be given with a temperature that cools "
                f"per epoch, and left out with others, got {iterations_per_epoch!r} with "
                f"{temperature!r}"
            )
        self._is_planned = temperature is None

    @property
    def temperature(self) -> float:
        """The temperature of the next accept test; 0 before one is planned."""
        return 0.0 if self._schedule is None else self._schedule.temperature

    def run(self, iterations: int) -> Result[S]:
        """Search for some more iterations, or until the callback returns True.

        A planned temperature keeps the plan of the first call: after its end the search goes on at
        temperature 0. ``run(0)`` returns the present result, after Ctrl-C for instance.

        Args:
            iterations: how many moves are tried.

        Raises:
            TypeError: if a method of the problem returns the wrong kind.
            ValueError: if ``iterations`` is negative, or the initial energy is NaN.
        """
        count("Annealer.run(iterations=...)", iterations, least=0)
        if self._walk is None:
            self._walk = self._begin()  # line 1
        if self._schedule is None and iterations:
            self._schedule = self._plan(iterations)
        for _ in range(iterations):  # line 2
            info = self._iterate(self._walk)
            if self.callback is not None and self.callback(info):
                break
        return copy.copy(self._walk)

    def _iterate(self, walk: Result[S]) -> IterationInfo[S]:
        """Try one move; the marks are the lines of Algorithm 1."""
        assert self._schedule is not None
        temperature = self._schedule.temperature
        tentative = _solution("propose", self.problem.propose(walk.state, self._rng))  # 3
        new_energy = _energy(self.problem.energy(tentative))
        _check_untouched(walk.state, tentative, walk.energy, new_energy)
        verdict = metropolis(walk.energy, new_energy, temperature, self._rng.random())  # 4-6
        if verdict.accepted:
            walk._move_to(tentative, new_energy)  # 7
        walk.iterations += 1
        self._schedule.observe(verdict.worsening)
        self._schedule.tick("step")  # 11
        if self.iterations_per_epoch and walk.iterations % self.iterations_per_epoch == 0:
            self._schedule.tick("epoch")
        after = (walk.iterations, temperature, walk.state, walk.energy, new_energy)
        return IterationInfo(*after, *verdict, best_energy=walk.best_energy)

    def _begin(self) -> Result[S]:
        state = _solution("initial", self.problem.initial(self._rng))
        energy = _energy(self.problem.energy(state))
        if math.isnan(energy) or energy == -math.inf:
            raise ValueError(
                "Annealer(problem=...) must start from an energy that is finite, or math.inf "
                f"where the initial solution is not feasible, got {energy!r}"
            )
        return Result(state, energy, best_state=state, best_energy=energy)

    def _plan(self, iterations: int) -> Schedule:
        self._planned_for = iterations
        probes = max(1, min(_PROBES, iterations // 20))  # a short search is not all measuring
        return Automatic(
            length=iterations, per="step", probes=probes, start=_START, end=_START, quench=_QUENCH
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs to continue the same trajectory.

        All of it is plain data except the problem's own solutions: if these can be written as
        JSON, all of it can (JSON turns tuples into lists). Take it between two iterations: before
        or after ``run``, or from the callback.
        """
        version, words, gauss = self._rng.getstate()
        return {
            "walk": None if self._walk is None else dict(vars(self._walk)),
            "rng": [version, list(words), gauss],
            "planned_for": self._planned_for,
            "schedule": None if self._schedule is None else self._schedule.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken, in an annealer with the same arguments.

        Args:
            state: what ``state_dict`` returned.

        Raises:
            ValueError: if it is something else, or only one of the two plans its temperature.
        """
        planned_for = state.get("planned_for")
        is_given = planned_for is None and state.get("schedule") is not None
        if set(state) != set(self.state_dict()) or is_given == self._is_planned:
            raise ValueError(
                "Annealer.load_state_dict(state=...) must be what state_dict returned, of an "
                "annealer with the same temperature"
            )
        schedule = copy.deepcopy(self._schedule)
        if self._is_planned:
            schedule = None if planned_for is None else self._plan(planned_for)
        if schedule is not None:
            schedule.load_state_dict(state["schedule"])
        version, words, gauss = state["rng"]
        self._rng.setstate((version, tuple(words), gauss))
        self._schedule, self._planned_for = schedule, planned_for
        self._walk = state["walk"] and Result(**state["walk"])


def _solution(method: str, solution: S) -> S:
    """Refuse None, the result of a method that changes a solution in place."""
    if solution is None:
        raise TypeError(
            f"Annealer(problem=...) must return a solution from {method}, got None; "
            "a method that changes its argument in place must copy it first and return the copy"
        )
    return solution


def _check_untouched(state: Any, tentative: Any, energy: float, new_energy: float) -> None:
    """Refuse a move that changed the present solution itself: it could not be undone.

    A move that changes nothing may return the solution it was given: its energy is the same.
    What cannot be changed in place, such as a number, may have an energy that is random.
    """
    unchangeable = (int, float, complex, str, bytes, tuple, frozenset)
    if tentative is state and new_energy != energy and not isinstance(state, unchangeable):
        raise TypeError(
            "Annealer(problem=...) must return a new solution from propose, got the one it was "
            f"given, changed in place (its energy was {energy:.6g} and is {new_energy:.6g}): copy "
            "it first, change the copy and return that"
        )


def _energy(energy: Any) -> float:
    """Turn an energy into a float, whatever type of number it is; text is refused."""
    if type(energy) is float:
        return energy
    try:
        if hasattr(energy, "__float__"):
            return float(energy)
    except (TypeError, ValueError):  # an array of several numbers
        pass
    raise TypeError(f"Annealer(problem=...) must return a number from energy, got {energy!r}")
