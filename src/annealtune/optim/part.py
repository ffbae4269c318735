"""What an optimizer of ours is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
        """Continue where ``state_dict`` was taken; attributes are replaced, not written into."""

    def way_back(self) -> Callable[[], None]:
        """Return a function that makes this part what it is now, for a load that fails."""
        return way_back_of(self)

    def renew(self) -> None:
        """Forget what was noted of the base: its groups or its state are new."""


def way_back_of(*owners: object) -> Callable[[], None]:
    """Return a function that gives objects the attributes they have now, the very same ones.

    Example:
        >>> part = Part()
        >>> go_back = way_back_of(part)
        >>> part.pending = "later"
        >>> go_back()
        >>> part.pending
        ''
    """
    before = [(vars(owner), dict(vars(owner))) for owner in owners]

    def go_back() -> None:
        for attributes, former in before:
            attributes.update(former)
            for name in attributes.keys() - former.keys():
                del attributes[name]

    return go_back
