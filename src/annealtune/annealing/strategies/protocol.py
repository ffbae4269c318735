"""What a metaheuristic must offer to run inside the optimizers and the search engine."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from annealtune.annealing.acceptance import Verdict
from annealtune.annealing.neighborhood import Neighborhood, Setting
from annealtune.annealing.temperature import Clock


@runtime_checkable
class Strategy(Protocol):
    """Pick a move, decide on it, learn from it, hear of time passing.

    One step calls ``pick``, ``decide``, ``observe`` and ``tick("step")`` in this order; the end of
    an epoch calls ``tick("epoch")``. All randomness comes from the generator that is passed in;
    the caller owns it, saves it and restores it. What the strategy itself must remember is in
    ``state_dict``, as plain data. `PlainStrategy` has all of it but the decision: derive from it.
    """

    @property
    def temperature(self) -> float:
        """The temperature of the next decision (NaN for a strategy that has none)."""

    def check(self, neighborhood: Neighborhood) -> None:
        """Raise ValueError if the strategy does not fit H; called once, before the first pick."""

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Choose the setting of the next move."""

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep or undo the move from ``value`` to ``new_value``."""

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Learn what became of the move with this setting."""

    def tick(self, clock: Clock) -> None:
        """Note the end of a step or of an epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs, as plain data."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""


@runtime_checkable
class Comparing(Strategy, Protocol):
    """A strategy that measures several candidates before it moves; each costs one evaluation.

    Where ``candidates`` is 1 it is asked to ``pick`` like any other. Otherwise a step calls
    ``shortlist``, measures every setting on it from the same point, calls ``select`` and then
    ``decide`` and ``observe`` for the one that was selected.
    """

    @property
    def candidates(self) -> int:
        """How many settings are measured a step."""

    def shortlist(self, neighborhood: Neighborhood, rng: random.Random) -> tuple[Setting, ...]:
        """Choose the different settings to measure."""

    def select(self, value: float, measured: Mapping[Setting, float]) -> Setting:
        """Choose the move among them, by the values from ``value`` that they lead to."""
