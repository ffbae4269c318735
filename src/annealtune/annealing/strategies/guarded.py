"""What the strategies share that keep every move but one that breaks the loss."""

from __future__ import annotations

import math
import random
from typing import Any, ClassVar

from annealtune.annealing.acceptance import Predicted, Verdict
from annealtune.annealing.loss_level import LossLevel
from annealtune.annealing.strategies.plain import PlainStrategy

# A move that worsens by more than this share of the loss itself is undone.
_TOLERANCE = 0.2


class GuardedStrategy(PlainStrategy):
    """Keep a move unless it worsens by more than a fifth of the loss; a subclass picks it.

    The subclass notes in ``_promised`` which worsening it expects of its pick.
    """

    picks_settings: ClassVar[bool] = True

    def __init__(self) -> None:
        self._level = LossLevel()
        self._promised = 0.0  # worsening of the last pick

    def bound(self, value: float, rng: random.Random) -> float | None:
        """Have a move measured that promises harm; any other was picked for what it promises."""
        return None if self._breaks(self._promised, value) else math.inf

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep the move unless it breaks something."""
        if isinstance(new_value, Predicted):
            return Verdict.of(value, new_value, accepted=True)
        accepted = not self._breaks(new_value - value, value)
        self._level.see(value)
        return Verdict.of(value, new_value, accepted=accepted)

    def _breaks(self, worsening: float, value: float) -> bool:
        return not worsening <= _TOLERANCE * self._level.size(value)

    def state_dict(self) -> dict[str, Any]:
        """Return the level of the loss and what the last pick promised."""
        return {"losses": self._level.state_dict(), "promised": self._promised}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._level.load_state_dict(state["losses"])
        self._promised = state["promised"]
