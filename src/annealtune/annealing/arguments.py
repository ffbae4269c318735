"""Checks of constructor arguments, so that every message names argument, rule and value.

``argument`` says where a value was given, such as ``"Geometric(factor=...)"``.
"""

from __future__ import annotations

import math
import operator
from typing import Any


def number(argument: str, value: Any) -> float:
    """Return a real number as a float.

    Raises:
        TypeError: if it is not a number; True and False are refused too.

    Example:
        >>> number("Geometric(factor=...)", 1)
        1.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{argument} must be a number, got {value!r}")
    return float(value)


def not_negative(argument: str, value: Any) -> float:
    """Return a number that is at least 0, infinity included.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is negative or NaN.

    Example:
        >>> not_negative("Constant(temperature=...)", 0)
        0.0
    """
    checked = number(argument, value)
    if math.isnan(checked) or checked < 0:
        raise ValueError(f"{argument} must be a number that is not negative, got {value!r}")
    return checked


def positive(argument: str, value: Any) -> float:
    """Return a number that is positive and finite.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is 0, negative, infinite or NaN.

    Example:
        >>> positive("WeightPopulation(radius=...)", 0.1)
        0.1
    """
    checked = number(argument, value)
    if not 0 < checked < math.inf:
        raise ValueError(f"{argument} must be positive and finite, got {value!r}")
    return checked


def share(argument: str, value: Any) -> float:
    """Return a number between 0 and 1, both included: a probability or a part of a whole.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is outside, or NaN.

    Example:
        >>> share("Genetic(mutation=...)", 0.2)
        0.2
    """
    checked = number(argument, value)
    if not 0 <= checked <= 1:
        raise ValueError(f"{argument} must lie between 0 and 1, got {value!r}")
    return checked


def whole(argument: str, value: Any) -> int:
    """Return a whole number; numpy's integers are accepted.

    Raises:
        TypeError: if it is not one; 3.0 and True are refused too.

    Example:
        >>> whole("SelfTuner(seed=...)", -1)
        -1
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{argument} must be a whole number, got {value!r}")
    return operator.index(value)


def count(argument: str, value: Any, *, least: int) -> int:
    """Return a whole number that is at least ``least``; numpy's integers are accepted.

    Raises:
        TypeError: if it is not a whole number; 3.0 and True are refused too.
        ValueError: if it is smaller than ``least``.

    Example:
        >>> count("Reheating(every=...)", 3, least=1)
        3
    """
    checked = whole(argument, value)
    if checked < least:
        raise ValueError(f"{argument} must be at least {least}, got {value!r}")
    return checked


def one_length(owner: str, **lengths: int | None) -> None:
    """Check the planned length of a run, which may be given in one of several units.

    Raises:
        TypeError: if it is not a whole number.
        ValueError: if it is given twice, or below 1.

    Example:
        >>> one_length("EmbeddedTuner", epochs=5, total_steps=None)
    """
    given = {name: length for name, length in lengths.items() if length is not None}
    for name, length in given.items():
        count(f"{owner}({name}=...)", length, least=1)
    if len(given) > 1:
        names = ", ".join(f"{name}=..." for name in given)
        values = " and ".join(f"{name}={length!r}" for name, length in given.items())
        raise ValueError(f"{owner}({names}) must be given one length, got {values}")
