"""Checks of arguments, so that every message names argument, rule and value.

``argument`` says where a value was given, such as ``"Geometric(factor=...)"``. Each check returns
the value; it raises TypeError for a wrong kind (True and False are no numbers) and ValueError for
one that breaks the rule.

Example:
    >>> number("Geometric(factor=...)", 1), not_negative("Constant(temperature=...)", 0)
    (1.0, 0.0)
    >>> positive("SelfTuner(around=...)", 0.1)
    0.1
    >>> whole("SelfTuner(seed=...)", -1), count("Reheating(every=...)", 3, least=1)
    (-1, 3)
"""

from __future__ import annotations

import math
import operator
from typing import Any


def number(argument: str, value: Any) -> float:
    """Return a real number as a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{argument} must be a number, got {value!r}")
    return float(value)


def not_negative(argument: str, value: Any) -> float:
    """Return a number that is at least 0, infinity included."""
    checked = number(argument, value)
    if math.isnan(checked) or checked < 0:
        raise ValueError(f"{argument} must be a number that is not negative, got {value!r}")
    return checked


def positive(argument: str, value: Any) -> float:
    """Return a number that is positive and finite."""
    checked = number(argument, value)
    if not 0 < checked < math.inf:
        raise ValueError(f"{argument} must be positive and finite, got {value!r}")
    return checked


def whole(argument: str, value: Any) -> int:
    """Return a whole number; numpy's integers are accepted, 3.0 is not."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{argument} must be a whole number, got {value!r}")
    return operator.index(value)


def count(argument: str, value: Any, *, least: int) -> int:
    """Return a whole number that is at least ``least``."""
    checked = whole(argument, value)
    if checked < least:
        raise ValueError(f"{argument} must be at least {least}, got {value!r}")
    return checked


def shown(thing: object) -> str:
    """Return an object as its class with its public attributes, for messages."""
    public = (f"{k}={v!r}" for k, v in vars(thing).items() if not k.startswith("_"))
    return f"{type(thing).__name__}({', '.join(public)})"
