"""The state of a random number generator, as plain data."""

from __future__ import annotations

import random
from typing import Any


def saved(rng: random.Random) -> list[Any]:
    """Return the state of a generator as lists and numbers, which JSON keeps.

    Example:
        >>> one, other = random.Random(1), random.Random(2)
        >>> restore(other, saved(one))
        >>> one.random() == other.random()
        True
    """
    version, words, gauss = rng.getstate()
    return [version, list(words), gauss]


def restore(rng: random.Random, state: list[Any]) -> None:
    """Set a generator to a saved state."""
    version, words, gauss = state
    rng.setstate((version, tuple(words), gauss))
