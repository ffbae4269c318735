"""Checks of what a problem is, of what its methods return, and of a strategy for it."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from annealtune.annealing import Strategy

S = TypeVar("S")

METHODS = ("initial", "propose", "energy")
_UNCHANGEABLE = (int, float, complex, str, bytes, tuple, frozenset)


def check_problem(
    problem: Any, owner: str = "Annealer", methods: tuple[str, ...] = METHODS
) -> None:
    """Refuse an object that lacks a method of `Problem`, or one more that a search needs.

    Raises:
        TypeError: naming the methods that are missing.
    """
    missing = [name for name in methods if not callable(getattr(problem, name, None))]
    if missing:
        raise TypeError(
            f"{owner}(problem=...) must have the methods {', '.join(methods[:-1])} and "
            f"{methods[-1]}, got {problem!r} without {', '.join(missing)}"
        )
    if isinstance(problem, type):
        raise TypeError(f"{owner}(problem=...) must be an object, got the class {problem!r}")


def check_callback(callback: Any, owner: str = "Annealer") -> None:
    """Refuse a callback that cannot be called.

    Raises:
        TypeError: naming it.
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"{owner}(callback=...) must be callable, got {callback!r}")


def check_strategy(strategy: Any) -> None:
    """Refuse anything but a strategy, and a strategy whose method is to choose settings.

    Raises:
        TypeError: saying why.
    """
    # A class has all the names of the protocol, but only its instances are strategies.
    if isinstance(strategy, type) or not isinstance(strategy, Strategy):
        raise TypeError(f"Annealer(strategy=...) must be a Strategy, got {strategy!r}")
    if getattr(strategy, "picks_settings", False):
        raise TypeError(
            "Annealer(strategy=...) must decide on moves alone: a problem proposes its own, and "
            f"there is no H whose settings could be chosen, got {strategy!r}; use GeneticSearch "
            "for a population of solutions"
        )


def check_state(state: Any, needed: set[str], owner: str = "Annealer") -> None:
    """Refuse a state that ``state_dict`` cannot have returned.

    Raises:
        ValueError: naming the keys that it has.
    """
    if not isinstance(state, dict) or not needed <= state.keys():
        given = sorted(state) if isinstance(state, dict) else repr(state)
        raise ValueError(
            f"{owner}.load_state_dict(state=...) must be what state_dict returned, a dict with "
            f"the keys {sorted(needed)}, got {given}"
        )


def checked_solution(method: str, solution: S, owner: str = "Annealer") -> S:
    """Refuse None, the result of a method that changes a solution in place.

    Raises:
        TypeError: naming the method.
    """
    if solution is None:
        raise TypeError(
            f"{owner}(problem=...) must return a solution from {method}, got None; "
            "a method that changes its argument in place must copy it first and return the copy"
        )
    return solution


def check_untouched(state: Any, tentative: Any, energy: float, new_energy: float) -> None:
    """Refuse a move that changed the present solution itself: it could not be undone.

    A move that changes nothing may return the solution it was given: its energy is the same.
    What cannot be changed in place, such as a number, may have an energy that is random.

    Raises:
        TypeError: if the energy has changed with it.
    """
    if tentative is not state or new_energy == energy:
        return
    if not isinstance(state, _UNCHANGEABLE):
        raise TypeError(
            "Annealer(problem=...) must return a new solution from propose, got the one it was "
            f"given, changed in place (its energy was {energy:.6g} and is {new_energy:.6g}): copy "
            "it first, change the copy and return that"
        )


def checked_energy(energy: Any, owner: str = "Annealer") -> float:
    """Turn an energy into a float, whatever type of number it is.

    Raises:
        TypeError: if it is not a number; text that looks like one is refused too.
    """
    if type(energy) is float:
        return energy
    try:
        if hasattr(energy, "__float__"):
            return float(energy)
    except (TypeError, ValueError):  # an array of several numbers
        pass
    raise TypeError(f"{owner}(problem=...) must return a number from energy, got {energy!r}")


def checked_initial_energy(energy: Any) -> float:
    """Turn the first energy into a float from which a worsening can be computed.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is NaN or minus infinity.
    """
    checked = checked_energy(energy)
    if math.isnan(checked) or checked == -math.inf:
        raise ValueError(
            "Annealer(problem=...) must start from an energy that is finite, or math.inf where "
            f"the initial solution is not feasible, got {energy!r}"
        )
    return checked
