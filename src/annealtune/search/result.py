"""What a search reports: one iteration, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from annealtune.annealing import Verdict

S = TypeVar("S")

StopReason = Literal["iterations", "evaluations", "seconds", "callback"]


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


@dataclass
class Walk(Generic[S]):
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

    def count_iteration(self, evaluations: int = 1) -> None:
        """Count an iteration and the evaluations that it took."""
        self.iterations += 1
        self.evaluations += evaluations

    def info(self, temperature: float, new_energy: float, verdict: Verdict) -> IterationInfo[S]:
        """Describe the iteration that was just completed."""
        return IterationInfo(
            self.iterations,
            temperature,
            self.state,
            self.energy,
            new_energy,
            *verdict,
            best_energy=self.best_energy,
        )
