"""What a metaheuristic must offer to run inside the optimizers and the search engine."""

from __future__ import annotations

import random
from typing import Any, Protocol, runtime_checkable

from annealtune.annealing.acceptance import Verdict
from annealtune.annealing.neighborhood import Neighborhood, Setting
from annealtune.annealing.temperature import Clock


@runtime_checkable
class Strategy(Protocol):
    """Pick a move, decide on it, hear of time passing.

    All randomness comes from the generator that is passed in; the caller owns it, saves it and
    restores it. What the strategy itself must remember is in ``state_dict``, as plain data.
    """

    @property
    def temperature(self) -> float:
        """The temperature of the next decision (NaN for a strategy that has none)."""

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Choose the setting of the next move."""

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep or undo the move from ``value`` to ``new_value``."""

    def tick(self, clock: Clock) -> None:
        """Note the end of a step or of an epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs, as plain data."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
