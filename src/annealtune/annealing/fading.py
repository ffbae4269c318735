"""Sums over the past in which older terms count less."""

from __future__ import annotations

import math
from collections.abc import Iterable


def faded(sums: Iterable[float], terms: Iterable[float], forgetting: float) -> list[float]:
    """Return the sums with new terms added, the old ones weighted by ``forgetting``.

    Example:
        >>> faded([1.0, 4.0], (1.0, 6.0), 0.5)
        [1.5, 8.0]
    """
    return [forgetting * old + new for old, new in zip(sums, terms, strict=True)]


def deviation(weight: float, total: float, squares: float) -> float:
    """Return the standard deviation from the sums of 1, of the values and of their squares.

    Example:
        >>> deviation(2.0, 0.0, 8.0)
        2.0
    """
    return math.sqrt(max(squares / weight - (total / weight) ** 2, 0.0))
