"""The library with another constant, so that the experiments behind a constant can be repeated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest import mock

from annealtune.annealing import race as rules
from annealtune.optim import averaging, guard, held_setting
from annealtune.optim.trial import arm_rates, centre, races

# What can be changed: a module and its constant.
CONSTANTS: dict[str, tuple[ModuleType, str]] = {
    "spacing": (arm_rates, "SPACING"),
    "below": (races, "_BELOW"),
    "above": (races, "_ABOVE"),
    "most-races": (races, "_MOST_RACES"),
    "clearly": (rules, "_CLEARLY"),
    "least-window": (rules, "_LEAST_WINDOW"),
    "outlier": (rules, "_OUTLIER"),
    "learnt": (rules, "_LEARNT"),
    "longest": (rules, "_LONGEST"),
    "share": (rules, "_SHARE"),
    "most": (rules, "_MOST"),
    "anytime-length": (rules, "_ANYTIME"),
    "centre-of-adam": (centre, "_WITH_ADAM"),
    "relative-change": (centre, "_RELATIVE_CHANGE"),
    "centre-steps": (centre, "_STEPS"),
    "most-cuts": (guard, "_MOST_CUTS"),
    "warm-up": (held_setting, "_WARM_UP"),
    "decay": (held_setting, "_DECAY"),
    "memory": (averaging, "_MEMORY"),
}


def parse(text: str) -> dict[str, float]:
    """Return names and values of "name=value,name=value".

    Raises:
        ValueError: if a name is unknown or a value no number.
    """
    chosen: dict[str, float] = {}
    for piece in filter(None, text.split(",")):
        name, _, value = piece.partition("=")
        if name not in CONSTANTS:
            raise ValueError(f"unknown constant {name!r}; there are {', '.join(CONSTANTS)}")
        chosen[name] = float(value)
    return chosen


@contextlib.contextmanager
def applied(variant: str) -> Iterator[None]:
    """Give the library these constants for as long as the context lasts."""
    with contextlib.ExitStack() as stack:
        for name, value in parse(variant).items():
            stack.enter_context(_patch(name, value))
        yield


def _patch(name: str, value: float) -> Any:
    module, constant = CONSTANTS[name]
    return mock.patch.object(module, constant, type(getattr(module, constant))(value))
