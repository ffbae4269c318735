"""The library with another constant or rule, so that the experiments behind it can be repeated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any
from unittest import mock

from annealtune.annealing import Setting
from annealtune.annealing import race as rules
from annealtune.optim import average, centre, guard, race, schedule, self_tuner
from annealtune.optim.average import WeightAverage
from annealtune.optim.centre import ADAMS
from annealtune.optim.race import Race, Races, rate_of, spaced

Patch = AbstractContextManager[Any]

# Constants: a name, and the modules that have it.
CONSTANTS: dict[str, tuple[str, tuple[ModuleType, ...]]] = {
    "spacing": ("SPACING", (race,)),
    "most-races": ("_MOST_RACES", (race,)),
    "clearly": ("_CLEARLY", (rules,)),
    "least-window": ("LEAST_WINDOW", (rules,)),
    "outlier": ("_OUTLIER", (rules,)),
    "grace": ("_GRACE", (rules,)),
    "catching-up": ("_CATCHING_UP", (rules,)),
    "changed": ("_CHANGED", (rules,)),
    "longest": ("_LONGEST", (rules,)),
    "share": ("_SHARE", (rules,)),
    "most": ("_MOST", (rules,)),
    "short-share": ("_SHORT_SHARE", (rules,)),
    "short-most": ("_SHORT_MOST", (rules,)),
    "patience": ("_PATIENCE", (rules,)),
    "anytime-length": ("_ANYTIME", (rules,)),
    "relative-change": ("_RELATIVE_CHANGE", (centre,)),
    "centre-steps": ("_STEPS", (centre,)),
    "most-cuts": ("_MOST_CUTS", (guard,)),
    "warm-up": ("_WARM_UP", (schedule,)),
    "decay": ("_DECAY", (schedule,)),
    "memory": ("_MEMORY", (average,)),
}


def _cautious(_: float) -> Patch:
    """Let a smaller rate than the incumbent's win although it is not clearly better."""
    return mock.patch.object(Races, "_cautious", lambda _, __, outcome: outcome)


def _further(_: float) -> Patch:
    """Hold no race below the lowest rate, even if that one does harm."""
    return mock.patch.object(Races, "_further", return_value=())


def _upwards(_: float) -> Patch:
    """Race on above the highest rate where it has won, over bases that are not Adams."""
    below = Races._further

    def further(self: Races, race: Race, arm: int) -> tuple[Setting, ...]:
        rates = [rate_of(setting) for setting in race.settings]
        has_room = not self._before(race) and self._may_race_on(race, 3)
        if rates[arm] < max(rates) or isinstance(self.context.base, ADAMS) or not has_room:
            return below(self, race, arm)
        return spaced(rates[arm], 0, 2)

    return mock.patch.object(Races, "_further", further)


def _guard(_: float) -> Patch:
    """Never go back: a run that diverges is lost."""

    def unguarded(*arguments: Any, **options: Any) -> guard.LossGuard:
        return guard.LossGuard(*arguments, **{**options, "is_on": False})

    return mock.patch.object(self_tuner, "LossGuard", unguarded)


def _ending(_: float) -> Patch:
    """Average over the last tenth of the steps to the end, while the rate decays too."""
    add = WeightAverage.add
    return mock.patch.object(WeightAverage, "add", lambda self, *_: add(self))


# Rules: what they are without one that the library has, or with one that it has not.
RULES: dict[str, tuple[Callable[[float], Patch], float | None]] = {
    "cautious": (_cautious, 0),
    "further": (_further, 0),
    "upwards": (_upwards, 1),
    "guard": (_guard, 0),
    "ending": (_ending, 0),
}
NAMES = (*CONSTANTS, *RULES)


def parse(text: str) -> dict[str, float]:
    """Return names and values of "name=value,name=value".

    Raises:
        ValueError: if a name is unknown, a value no number, or none that the rule has.
    """
    chosen: dict[str, float] = {}
    for piece in filter(None, text.split(",")):
        name, _, value = piece.partition("=")
        if name not in NAMES:
            raise ValueError(f"unknown name {name!r}; there are {', '.join(NAMES)}")
        chosen[name] = float(value)
        only = RULES[name][1] if name in RULES else None
        if only is not None and chosen[name] != only:
            raise ValueError(f"{name} must be {only:g}, for else it is as usual, got {value}")
    return chosen


@contextlib.contextmanager
def applied(variant: str) -> Iterator[None]:
    """Give the library these constants and rules for as long as the context lasts."""
    with contextlib.ExitStack() as stack:
        for name, value in parse(variant).items():
            if name in RULES:
                stack.enter_context(RULES[name][0](value))
                continue
            constant, modules = CONSTANTS[name]
            for module in modules:
                kind = type(getattr(module, constant))
                stack.enter_context(mock.patch.object(module, constant, kind(value)))
        yield
