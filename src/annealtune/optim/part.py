"""What an optimizer of ours is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Part:
    """A part of an optimizer. It keeps its own state, and saves, checks and loads it.

    The parts of an optimizer share one dict in its checkpoint, where each has its own keys.

    Attributes:
        pending: why the methods of the optimizer must not be called now; empty if they may.
    """

    pending = ""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold, as plain data and tensors."""
        return {}

    def check(self, state: Mapping[str, Any]) -> None:
        """Refuse, by a ValueError, the state of another kind of run before anything is loaded."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""

    def renew(self) -> None:
        """Forget what was noted of the base: its groups or its state are new."""
