"""The library with another constant, so that the experiments behind a constant can be repeated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest import mock

from annealtune.annealing import race as rules
from annealtune.optim import averaging, held_setting, loss_guard
from annealtune.optim.trial import arm_rates, centre, races

# What can be changed: a module and its constant.
CONSTANTS: dict[str, tuple[ModuleType, str]] = {
    "spacing": (arm_rates, "SPACING"),
    "on-each-side": (races, "_ON_EACH_SIDE"),
    "most-belief": (rules, "_MOST_BELIEF"),
    "believed-steps": (rules, "_BELIEVED_STEPS"),
    "clearly": (rules, "_CLEARLY"),
    "least-window": (rules, "_LEAST_WINDOW"),
    "stay": (rules, "_STAY"),
    "outlier": (rules, "_OUTLIER"),
    "share": (rules, "_SHARE"),
    "shortest": (rules, "_SHORTEST"),
    "longest": (rules, "_LONGEST"),
    "short-run": (rules, "_SHORT_RUN"),
    "long-run": (rules, "_LONG_RUN"),
    "enough": (rules, "_ENOUGH"),
    "anytime-length": (rules, "_ANYTIME"),
    "centre-of-adam": (centre, "_WITH_ADAM"),
    "relative-change": (centre, "_RELATIVE_CHANGE"),
    "cut": (loss_guard, "_CUT"),
    "decay": (held_setting, "_DECAY"),
    "memory": (averaging, "_MEMORY"),
}
# Not a constant: further-races=0 holds none where the lowest rate has won.
FURTHER_RACES = "further-races"
NAMES = (*CONSTANTS, FURTHER_RACES)


def parse(text: str) -> dict[str, float]:
    """Return names and values of "name=value,name=value".

    Raises:
        ValueError: if a name is unknown or a value no number.
    """
    chosen: dict[str, float] = {}
    for piece in filter(None, text.split(",")):
        name, _, value = piece.partition("=")
        if name not in NAMES:
            raise ValueError(f"unknown constant {name!r}; there are {', '.join(NAMES)}")
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
    if name == FURTHER_RACES:
        if value:
            return contextlib.nullcontext()
        return mock.patch.object(races.Races, "_below", return_value=())
    module, constant = CONSTANTS[name]
    return mock.patch.object(module, constant, type(getattr(module, constant))(value))
