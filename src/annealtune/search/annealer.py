"""Simulated annealing for any problem: Algorithm 1 of the paper."""

from __future__ import annotations

import copy
import random
from typing import Any, Generic, TypeVar

from annealtune.annealing import Automatic, Schedule, Setting, SimulatedAnnealing, Strategy
from annealtune.annealing.arguments import count
from annealtune.annealing.strategies.registry import make_strategy, takes_temperature
from annealtune.annealing.temperature import as_schedule
from annealtune.search import generator
from annealtune.search.budget import Budget, Callback, repeat
from annealtune.search.checks import (
    check_callback,
    check_problem,
    check_state,
    check_strategy,
    check_untouched,
    checked_energy,
    checked_initial_energy,
    checked_solution,
)
from annealtune.search.cooling_plan import plan, plan_of
from annealtune.search.problem import Problem
from annealtune.search.result import IterationInfo, Result, Walk

S = TypeVar("S")
# A problem's moves have no setting; a strategy that learns from its moves is given this one.
MOVE = Setting({"move": "proposed"})


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
            falls as 1 / (1 + k / 1000) in iteration k. That works for any length of a few
            thousand iterations or more, but not as well; if the energy is slow, give
            ``evaluations``.
        strategy: another metaheuristic instead of simulated annealing: an object with its own
            temperature, which is copied, or a name such as ``"late-acceptance"``. It decides and
            observes; its ``pick`` is never called, because a problem proposes its own moves. A
            strategy whose method is to choose among the settings of H is refused.
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
        strategy: Strategy | str | None = None,
        seed: int = 0,
        iterations_per_epoch: int | None = None,
        callback: Callback[S] | None = None,
    ) -> None:
        check_problem(problem)
        check_callback(callback)
        if iterations_per_epoch is not None:
            count("Annealer(iterations_per_epoch=...)", iterations_per_epoch, least=1)
        self.problem = problem
        self.callback = callback
        self.iterations_per_epoch = iterations_per_epoch
        self._rng = random.Random(count("Annealer(seed=...)", seed, least=0))
        self._walk: Walk[S] | None = None
        self._strategy = _chosen(strategy, temperature)
        self._automatic = self._strategy is None
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
        begun = self._walk is not None
        budget = Budget(iterations, evaluations=evaluations, seconds=seconds, begun=begun)
        strategy = self._plan(budget)
        walk = self._begin()  # line 1
        return repeat(lambda: self._iterate(walk, strategy), walk, budget, self.callback)  # 2-11

    def _iterate(self, walk: Walk[S], strategy: Strategy) -> IterationInfo[S]:
        """Try one move; the marks are the lines of Algorithm 1."""
        temperature = strategy.temperature
        tentative = checked_solution("propose", self.problem.propose(walk.state, self._rng))  # 3
        new_energy = checked_energy(self.problem.energy(tentative))
        check_untouched(walk.state, tentative, walk.energy, new_energy)
        verdict = strategy.decide(walk.energy, new_energy, self._rng)  # 4-6
        if verdict.accepted:
            walk.move_to(tentative, new_energy)  # 7
        strategy.observe(MOVE, verdict)
        walk.count_iteration()
        strategy.tick("step")  # 11
        if self.iterations_per_epoch and walk.iterations % self.iterations_per_epoch == 0:
            strategy.tick("epoch")
        return walk.info(temperature, new_energy, verdict)

    def _plan(self, budget: Budget) -> Strategy:
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
        """Return what ``load_state_dict`` needs to continue the same trajectory.

        All of it is plain data except the problem's own solutions: if these can be written as
        JSON, all of it can (JSON turns tuples into lists). Take it between two iterations: before
        or after ``run``, or from the callback.
        """
        return {
            "walk": None if self._walk is None else dict(vars(self._walk)),
            "rng": generator.saved(self._rng),
            "schedule": self._kind(),
            "plan": plan_of(_schedule_of(self._strategy)) if self._automatic else None,
            # What simulated annealing remembers is its temperature; others keep their own here.
            "temperature": None if self._strategy is None else self._strategy.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken, in an annealer with the same arguments.

        Args:
            state: what ``state_dict`` returned.

        Raises:
            ValueError: if it is something else, or its strategy or temperature was of another
                kind.
        """
        check_state(state, {"walk", "rng", "schedule", "plan", "temperature"})
        if state["schedule"] != self._kind():
            raise ValueError(
                "Annealer.load_state_dict(state=...) must come from an annealer with the same kind "
                f"of strategy and temperature, here {self._kind()!r}, got {state['schedule']!r}"
            )
        if self._automatic:
            plan = state["plan"]
            self._strategy = None if plan is None else SimulatedAnnealing(Automatic(**plan))
        if self._strategy is not None:
            self._strategy.load_state_dict(state["temperature"])
        generator.restore(self._rng, state["rng"])
        self._walk = state["walk"] and Walk(**state["walk"])

    def _kind(self) -> str:
        if self._automatic or self._strategy is None:
            return "planned"
        schedule = _schedule_of(self._strategy)
        kinds = [type(part).__name__ for part in (self._strategy, schedule) if part is not None]
        # Simulated annealing is the default and is not named.
        return " with ".join(kind for kind in kinds if kind != SimulatedAnnealing.__name__)


def _chosen(
    strategy: Strategy | str | None, temperature: float | Schedule | None
) -> Strategy | None:
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
    if isinstance(strategy, str):
        strategy = make_strategy("Annealer", strategy, {}, temperature=0.0)
        check_strategy(strategy)
        if takes_temperature(type(strategy)):
            raise ValueError(
                "Annealer(strategy=...) must be an object where the strategy has a temperature: "
                f"write {type(strategy).__name__}(temperature), got a name; without a strategy the "
                "temperature of simulated annealing is planned"
            )
    check_strategy(strategy)
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
