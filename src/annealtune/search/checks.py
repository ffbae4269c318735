"""Checks of what a problem is and of what its methods return."""

from __future__ import annotations

import math
from typing import Any, TypeVar

S = TypeVar("S")


def check_problem(problem: Any) -> None:
    """Refuse an object that lacks a method of `Problem`.

    Raises:
        TypeError: naming the methods that are missing.
    """
    missing = [
        name
        for name in ("initial", "propose", "energy")
        if not callable(getattr(problem, name, None))
    ]
    if missing:
        raise TypeError(
            "Annealer(problem=...) must have the methods initial, propose and energy, "
            f"got {problem!r} without {', '.join(missing)}"
        )
    if isinstance(problem, type):
        raise TypeError(f"Annealer(problem=...) must be an object, got the class {problem!r}")


def checked_solution(method: str, solution: S) -> S:
    """Refuse None, which is what a method returns that changes a solution in place.

    Raises:
        TypeError: naming the method.
    """
    if solution is None:
        raise TypeError(
            f"Annealer(problem=...) must return a solution from {method}, got None; "
            "a method that changes its argument in place must copy it first and return the copy"
        )
    return solution


def checked_energy(energy: Any) -> float:
    """Turn an energy into a float, whatever number it is.

    Raises:
        TypeError: if it is no number; text that looks like one is none.
    """
    if type(energy) is float:
        return energy
    try:
        if hasattr(energy, "__float__"):
            return float(energy)
    except (TypeError, ValueError):  # an array of several numbers
        pass
    raise TypeError(f"Annealer(problem=...) must return a number from energy, got {energy!r}")


def checked_initial_energy(energy: Any) -> float:
    """Turn the first energy into a float from which a worsening can be computed.

    Raises:
        TypeError: if it is no number.
        ValueError: if it is NaN or minus infinity.
    """
    checked = checked_energy(energy)
    if math.isnan(checked) or checked == -math.inf:
        raise ValueError(
            "Annealer(problem=...) must start from an energy that is finite, or math.inf where "
            f"the initial solution is not feasible, got {energy!r}"
        )
    return checked
