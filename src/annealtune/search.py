"""Algorithm 1 of the paper for any problem; imports neither torch nor anything third-party."""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from annealtune.annealing import Automatic, Schedule, Setting, SimulatedAnnealing, Strategy
from annealtune.annealing.arguments import count, not_negative
from annealtune.annealing.temperature import Clock, as_schedule

__all__ = ["Annealer", "IterationInfo", "Problem", "Result"]

S = TypeVar("S")
StopReason = Literal["iterations", "evaluations", "seconds", "callback"]

# A problem's moves have no setting; a strategy that learns from its moves is given this one.
_MOVE = Setting({"move": "proposed"})

# The temperature that is planned when none is given: T = unit * 0.4 * (1 - x)^2, x the share of the
# run that is over. Of some forty shapes this was the best compromise on eleven problems: tours
# (reversals, swaps), quadratic assignment, spin glasses, Rastrigin and Rosenbrock. A start of 1 or
# more spends the first part of the run without effect, 0.2 begins frozen on spin glasses. Geometric
# cooling forces a choice between an end that is still warm for a continuous function and one that
# hurries through the temperatures at which a tour takes shape; a square that ends at 0 serves both.
_START, _QUENCH, _PROBES = 0.4, 2.0, 100
# Without a length: one unit at first, half of it after this many iterations.
_HALVING = 1000


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
class _Walk(Generic[S]):
    """The present state of a search, as plain data from which it continues."""

    state: S
    energy: float
    best_state: S
    best_energy: float
    iterations: int = 0
    evaluations: int = 1
    accepted: int = 0
    improved: int = 0

    def move_to(self, state: S, energy: float) -> None:
        """Make an accepted solution the current one."""
        self.accepted += 1
        self.improved += energy < self.energy
        self.state, self.energy = state, energy
        if energy < self.best_energy:
            self.best_state, self.best_energy = state, energy


@dataclass(frozen=True)
class Result(Generic[S]):
    """The outcome of a search. Counts start at its beginning, over all calls of ``run``.

    Attributes:
        state: the last solution, the output of Algorithm 1.
        energy: its energy.
        best_state: the best solution that was visited.
        best_energy: its energy.
        iterations: how many moves were tried.
        evaluations: how many energies were computed, the one of the initial solution included.
        accepted: how many moves were kept.
        improved: how many moves were kept that lowered the energy.
        stopped_by: the argument of ``run`` that ended it, or ``"callback"``.
    """

    state: S
    energy: float
    best_state: S
    best_energy: float
    iterations: int
    evaluations: int
    accepted: int
    improved: int
    stopped_by: StopReason

    @property
    def acceptance_rate(self) -> float:
        """The share of the moves that were kept."""
        return self.accepted / self.iterations if self.iterations else 0.0

    @property
    def improvement_rate(self) -> float:
        """The share of the moves that were kept and lowered the energy."""
        return self.improved / self.iterations if self.iterations else 0.0


class Annealer(Generic[S]):
    r"""Minimize the energy of a problem by simulated annealing, or by another accept test.

    .. math:: prob = e^{-worsening / T}, \quad worsening = f(s_{new}) - f(s), \quad T = \alpha T

    All randomness comes from one generator of its own: the problem's methods are handed it, and
    every accept test draws exactly one number from it, needed or not. A tentative energy that is
    NaN or infinite is rejected; from an initial energy of ``math.inf`` any finite one is accepted.

    Args:
        problem: an object with ``initial(rng)``, ``propose(state, rng)`` and ``energy(state)``.
        temperature: a number is a constant temperature (0 is greedy); a schedule is copied and
            used as it is. None plans one in units of the first worsenings over the length that
            the first ``run`` is given, so that the scale of the energies does not matter. If
            ``run`` is only given seconds there is no length to plan with: then the temperature
            falls as 1 / (1 + k / 1000) in iteration k, which works, but not as well.
        strategy: another accept test instead of simulated annealing: an object with its own
            temperature, which is copied. It decides and observes; its ``pick`` is never called,
            because a problem proposes its own moves. A strategy whose method is to choose among
            the settings of H is refused.
        seed: the seed of the generator.
        iterations_per_epoch: how many iterations make an epoch, for cooling per epoch.
        callback: called with an `IterationInfo` after every iteration; the search stops if it
            returns True. ``state_dict`` may be called from it.

    Raises:
        TypeError: if an argument is of the wrong kind, or the strategy chooses settings.
        ValueError: if an argument breaks its rule, if both a temperature and a strategy are given,
            or the clocks do not fit: a schedule that cools per epoch needs
            ``iterations_per_epoch``, one that cools per step forbids it.

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
        strategy: Strategy | None = None,
        seed: int = 0,
        iterations_per_epoch: int | None = None,
        callback: Callable[[IterationInfo[S]], bool | None] | None = None,
    ) -> None:
        if isinstance(problem, type) or not isinstance(problem, Problem):
            raise TypeError(
                "Annealer(problem=...) must be an object with the methods initial, propose and "
                f"energy, got {problem!r}"
            )
        if callback is not None and not callable(callback):
            raise TypeError(f"Annealer(callback=...) must be callable, got {callback!r}")
        if iterations_per_epoch is not None:
            count("Annealer(iterations_per_epoch=...)", iterations_per_epoch, least=1)
        self.problem = problem
        self.callback = callback
        self.iterations_per_epoch = iterations_per_epoch
        self._rng = random.Random(count("Annealer(seed=...)", seed, least=0))
        self._walk: _Walk[S] | None = None
        self._strategy = _chosen(strategy, temperature)
        self._is_planned = self._strategy is None
        _check_clock(_schedule_of(self._strategy), iterations_per_epoch)

    @property
    def temperature(self) -> float:
        """The temperature of the next accept test; 0 before one is planned, NaN without any."""
        return 0.0 if self._strategy is None else self._strategy.temperature

    def run(
        self,
        iterations: int | None = None,
        *,
        evaluations: int | None = None,
        seconds: float | None = None,
    ) -> Result[S]:
        """Search until the first of the limits is reached; called again, continue.

        Limits count from this call. A planned temperature keeps the plan of the first call: after
        its end the search goes on at temperature 0. ``run(iterations=0)`` returns the present
        result, after Ctrl-C for instance.

        Args:
            iterations: stop after this many moves.
            evaluations: stop after this many energies, the one of the initial solution included.
            seconds: stop before the first iteration that would begin after this time.

        Raises:
            TypeError: if a limit is not a number, or a method of the problem returns the wrong
                kind.
            ValueError: if no limit is given, one is out of range, or the initial energy is NaN.
        """
        is_new = self._walk is None
        most, limit = _most_moves(iterations, evaluations, seconds, initial=int(is_new))
        allowed = math.inf if seconds is None else _finite("Annealer.run(seconds=...)", seconds)
        deadline = time.monotonic() + allowed
        strategy = self._plan(most)
        walk = self._begin()  # line 1
        first = walk.iterations
        stopped_by: StopReason | None = None
        while stopped_by is None:  # lines 2-11
            if most is not None and walk.iterations - first >= most:
                stopped_by = limit
            elif allowed < math.inf and time.monotonic() >= deadline:
                stopped_by = "seconds"
            else:
                info = self._iterate(walk, strategy)
                if self.callback is not None and self.callback(info):
                    stopped_by = "callback"
        return Result(**vars(walk), stopped_by=stopped_by)

    def _iterate(self, walk: _Walk[S], strategy: Strategy) -> IterationInfo[S]:
        """Try one move; the marks are the lines of Algorithm 1."""
        temperature = strategy.temperature
        tentative = _solution("propose", self.problem.propose(walk.state, self._rng))  # 3
        new_energy = _energy(self.problem.energy(tentative))
        _check_untouched(walk.state, tentative, walk.energy, new_energy)
        verdict = strategy.decide(walk.energy, new_energy, self._rng)  # 4-6
        if verdict.accepted:
            walk.move_to(tentative, new_energy)  # 7
        strategy.observe(_MOVE, verdict)
        walk.iterations += 1
        walk.evaluations += 1
        strategy.tick("step")  # 11
        if self.iterations_per_epoch and walk.iterations % self.iterations_per_epoch == 0:
            strategy.tick("epoch")
        after = (walk.iterations, temperature, walk.state, walk.energy, new_energy)
        return IterationInfo(*after, *verdict, best_energy=walk.best_energy)

    def _plan(self, moves: int | None) -> Strategy:
        if self._strategy is not None:
            return self._strategy
        strategy = SimulatedAnnealing(_planned(moves, self.iterations_per_epoch))
        if moves != 0:  # a look at the initial solution plans nothing
            self._strategy = strategy
        return strategy

    def _begin(self) -> _Walk[S]:
        if self._walk is None:
            state = _solution("initial", self.problem.initial(self._rng))
            energy = _energy(self.problem.energy(state))
            if math.isnan(energy) or energy == -math.inf:
                raise ValueError(
                    "Annealer(problem=...) must start from an energy that is finite, or math.inf "
                    f"where the initial solution is not feasible, got {energy!r}"
                )
            self._walk = _Walk(state, energy, best_state=state, best_energy=energy)
        return self._walk

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs to continue the same trajectory.

        All of it is plain data except the problem's own solutions: if these can be written as
        JSON, all of it can (JSON turns tuples into lists). Take it between two iterations: before
        or after ``run``, or from the callback.
        """
        version, words, gauss = self._rng.getstate()
        schedule = _schedule_of(self._strategy)
        names = ("length", "per", "probes", "start", "end", "quench")
        has_plan = self._is_planned and schedule is not None
        return {
            "walk": None if self._walk is None else dict(vars(self._walk)),
            "rng": [version, list(words), gauss],
            "kind": self._kind(),
            "plan": {name: getattr(schedule, name) for name in names} if has_plan else None,
            "strategy": None if self._strategy is None else self._strategy.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken, in an annealer with the same arguments.

        Args:
            state: what ``state_dict`` returned.

        Raises:
            ValueError: if it is something else, or its strategy or temperature was of another
                kind.
        """
        if set(state) != set(self.state_dict()):
            raise ValueError(
                "Annealer.load_state_dict(state=...) must be what state_dict returned, a dict with "
                f"the keys {sorted(self.state_dict())}, got {sorted(state)}"
            )
        if state["kind"] != self._kind():
            raise ValueError(
                "Annealer.load_state_dict(state=...) must come from an annealer with the same kind "
                f"of strategy and temperature, here {self._kind()!r}, got {state['kind']!r}"
            )
        if self._is_planned:
            plan = state["plan"]
            self._strategy = None if plan is None else SimulatedAnnealing(Automatic(**plan))
        if self._strategy is not None:
            self._strategy.load_state_dict(state["strategy"])
        version, words, gauss = state["rng"]
        self._rng.setstate((version, tuple(words), gauss))
        self._walk = state["walk"] and _Walk(**state["walk"])

    def _kind(self) -> str:
        if self._is_planned:
            return "planned"
        parts = (self._strategy, _schedule_of(self._strategy))
        return " with ".join(type(part).__name__ for part in parts if part is not None)


def _chosen(strategy: Strategy | None, temperature: float | Schedule | None) -> Strategy | None:
    """Return the strategy to use, None if its temperature is to be planned."""
    if strategy is None:
        if temperature is None:
            return None
        return SimulatedAnnealing(as_schedule("Annealer", temperature))
    if temperature is not None:
        raise ValueError(
            "Annealer(strategy=..., temperature=...) must be given one of the two: a strategy "
            f"brings its own temperature, got {temperature!r} too"
        )
    if not isinstance(strategy, Strategy):
        raise TypeError(f"Annealer(strategy=...) must be a Strategy, got {strategy!r}")
    if strategy.picks_settings:
        raise TypeError(
            "Annealer(strategy=...) must decide on moves alone: a problem proposes its own, and "
            f"there is no H whose settings could be chosen, got {strategy!r}"
        )
    return copy.deepcopy(strategy)


def _schedule_of(strategy: Strategy | None) -> Schedule | None:
    return getattr(strategy, "schedule", None)


def _check_clock(schedule: Schedule | None, iterations_per_epoch: int | None) -> None:
    clock = getattr(schedule, "per", None)  # a constant has no clock
    if clock == "epoch" and iterations_per_epoch is None:
        raise ValueError(
            "Annealer(iterations_per_epoch=...) must be given with a temperature that cools per "
            f"epoch, got None with {schedule!r}; per='step' cools at every iteration"
        )
    if clock == "step" and iterations_per_epoch is not None:
        raise ValueError(
            "Annealer(iterations_per_epoch=...) must be left out with a temperature that cools "
            f"per step, got {iterations_per_epoch!r} with {schedule!r}"
        )


def _planned(moves: int | None, iterations_per_epoch: int | None) -> Automatic:
    """Plan the cooling of a search of a given length; None if it ends by time alone."""
    if moves is None:
        if iterations_per_epoch is not None:
            raise ValueError(
                "Annealer(iterations_per_epoch=...) must be left out, or run() be given iterations "
                f"or evaluations: seconds alone plan no epochs, got {iterations_per_epoch!r}"
            )
        return Automatic(probes=_HALVING, start=1.0, end=1.0)
    probes = max(1, min(_PROBES, moves // 20))  # a short search must not be used up by measuring
    clock: Clock = "step" if iterations_per_epoch is None else "epoch"
    ticks = max(1, math.ceil(moves / (iterations_per_epoch or 1)))
    return Automatic(
        length=ticks, per=clock, probes=probes, start=_START, end=_START, quench=_QUENCH
    )


def _most_moves(
    iterations: int | None, evaluations: int | None, seconds: float | None, *, initial: int
) -> tuple[int | None, StopReason]:
    """Return how many moves one call may try and the limit that says so; the initial costs one."""
    if iterations is None and evaluations is None and seconds is None:
        raise ValueError(
            "Annealer.run() must be told when to stop: give iterations, evaluations or seconds, "
            "got none of them"
        )
    moves = None
    if iterations is not None:
        moves = count("Annealer.run(iterations=...)", iterations, least=0)
    if evaluations is not None:
        left = count("Annealer.run(evaluations=...)", evaluations, least=1) - initial
        if moves is None or left < moves:
            return left, "evaluations"
    return moves, "iterations"


def _finite(argument: str, seconds: float) -> float:
    checked = not_negative(argument, seconds)
    if math.isinf(checked):
        raise ValueError(f"{argument} must be finite, got {seconds!r}")
    return checked


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
