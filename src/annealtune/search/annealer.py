"""Simulated annealing for any problem: Algorithm 1 of the paper."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from annealtune.annealing import Automatic, Schedule, SimulatedAnnealing
from annealtune.annealing.arguments import count
from annealtune.annealing.temperature import as_schedule
from annealtune.search.budget import Budget
from annealtune.search.checks import (
    check_problem,
    checked_energy,
    checked_initial_energy,
    checked_solution,
)
from annealtune.search.plan import plan, plan_of
from annealtune.search.problem import Problem
from annealtune.search.result import IterationInfo, Result, StopReason, Walk

S = TypeVar("S")

Callback = Callable[[IterationInfo[S]], bool | None]


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
            the first ``run`` is given, so that the scale of the energies does not matter. Where
            ``run`` is given seconds alone there is no length to plan with: then the temperature
            falls as 1 / (1 + k / 1000) in iteration k. That serves any length beyond some
            thousand iterations, none perfectly; a slow energy is better given ``evaluations``.
        seed: the seed of the generator.
        iterations_per_epoch: how many iterations make an epoch, for cooling per epoch.
        callback: called with an `IterationInfo` after every iteration; the search stops if it
            returns True. ``state_dict`` may be called from it.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if an argument breaks its rule, or the clocks do not fit: a schedule that
            cools per epoch needs ``iterations_per_epoch``, one that cools per step forbids it.

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
        callback: Callback[S] | None = None,
    ) -> None:
        check_problem(problem)
        if callback is not None and not callable(callback):
            raise TypeError(f"Annealer(callback=...) must be callable, got {callback!r}")
        if iterations_per_epoch is not None:
            count("Annealer(iterations_per_epoch=...)", iterations_per_epoch, least=1)
        self.problem = problem
        self.callback = callback
        self.iterations_per_epoch = iterations_per_epoch
        self._rng = random.Random(count("Annealer(seed=...)", seed, least=0))
        self._walk: Walk[S] | None = None
        self._strategy: SimulatedAnnealing | None = None
        self._automatic = temperature is None
        if temperature is not None:
            schedule = as_schedule("Annealer", temperature)
            _check_clock(schedule, iterations_per_epoch)
            self._strategy = SimulatedAnnealing(schedule)

    @property
    def temperature(self) -> float:
        """The temperature of the next accept test; 0 before one is planned."""
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
        its end the search goes on at temperature 0. ``run(iterations=0)`` tells where the search
        stands, after Ctrl-C for instance.

        Args:
            iterations: stop after this many moves.
            evaluations: stop after this many energies, the one of the initial solution included.
            seconds: stop before the first iteration that would begin after this time.

        Raises:
            TypeError: if a limit is no number, or a method of the problem returns the wrong kind.
            ValueError: if no limit is given, one is out of range, or the initial energy is NaN.
        """
        begun = self._walk is not None
        budget = Budget(iterations, evaluations=evaluations, seconds=seconds, begun=begun)
        strategy = self._plan(budget)
        walk = self._begin()  # line 1
        first = walk.iterations
        stopped_by: StopReason | None
        while (stopped_by := budget.spent(walk.iterations - first)) is None:  # line 2
            info = self._iterate(walk, strategy)  # lines 3-11
            if self.callback is not None and self.callback(info):
                stopped_by = "callback"
                break
        return Result(**vars(walk), stopped_by=stopped_by)

    def _iterate(self, walk: Walk[S], strategy: SimulatedAnnealing) -> IterationInfo[S]:
        """Try one move; the marks are the lines of Algorithm 1."""
        temperature = strategy.temperature
        tentative = checked_solution("propose", self.problem.propose(walk.state, self._rng))  # 3
        new_energy = checked_energy(self.problem.energy(tentative))
        verdict = strategy.decide(walk.energy, new_energy, self._rng)  # 4-6
        if verdict.accepted:
            walk.move_to(tentative, new_energy)  # 7
        walk.count_iteration()
        strategy.tick("step")  # 11
        if self.iterations_per_epoch and walk.iterations % self.iterations_per_epoch == 0:
            strategy.tick("epoch")
        return walk.info(temperature, new_energy, verdict)

    def _plan(self, budget: Budget) -> SimulatedAnnealing:
        if self._strategy is not None:
            return self._strategy
        strategy = SimulatedAnnealing(plan(budget.moves, self.iterations_per_epoch))
        if budget.moves != 0:  # a look at the initial solution plans nothing
            self._strategy = strategy
        return strategy

    def _begin(self) -> Walk[S]:
        if self._walk is None:
            state = checked_solution("initial", self.problem.initial(self._rng))
            energy = checked_initial_energy(self.problem.energy(state))
            self._walk = Walk(state, energy, best_state=state, best_energy=energy)
        return self._walk

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs to continue the very same trajectory.

        All of it is plain data but the problem's own solutions: where these can be written as
        JSON, the whole can (JSON turns tuples into lists). Take it between two iterations: before
        or after ``run``, or from the callback.
        """
        version, words, gauss = self._rng.getstate()
        schedule = None if self._strategy is None else self._strategy.schedule
        return {
            "walk": None if self._walk is None else dict(vars(self._walk)),
            "rng": [version, list(words), gauss],
            "schedule": self._kind(),
            "plan": plan_of(schedule) if self._automatic else None,
            "temperature": None if schedule is None else schedule.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken, in an annealer that was constructed alike.

        Args:
            state: what ``state_dict`` returned.

        Raises:
            ValueError: if it is something else, or its temperature was of another kind.
        """
        _check_state(state, self._kind())
        if self._automatic:
            plan = state["plan"]
            self._strategy = None if plan is None else SimulatedAnnealing(Automatic(**plan))
        if self._strategy is not None:
            self._strategy.load_state_dict(state["temperature"])
        version, words, gauss = state["rng"]
        self._rng.setstate((version, tuple(words), gauss))
        self._walk = state["walk"] and Walk(**state["walk"])

    def _kind(self) -> str:
        if self._automatic or self._strategy is None:
            return "planned"
        return type(self._strategy.schedule).__name__


def _check_clock(schedule: Schedule, iterations_per_epoch: int | None) -> None:
    clock = getattr(schedule, "per", None)  # a constant follows none
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


def _check_state(state: Any, kind: str) -> None:
    needed = {"walk", "rng", "schedule", "plan", "temperature"}
    if not isinstance(state, dict) or not needed <= state.keys():
        given = sorted(state) if isinstance(state, dict) else repr(state)
        raise ValueError(
            "Annealer.load_state_dict(state=...) must be what state_dict returned, a dict with "
            f"the keys {sorted(needed)}, got {given}"
        )
    if state["schedule"] != kind:
        raise ValueError(
            "Annealer.load_state_dict(state=...) must come from an annealer with the same kind "
            f"of temperature, here {kind!r}, got {state['schedule']!r}"
        )
