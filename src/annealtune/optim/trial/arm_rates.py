"""The settings of arms in the order of their rates."""

from __future__ import annotations

from collections.abc import Iterable

from torch.optim import Optimizer

from annealtune.annealing import Setting

# Rates of the arms are this factor apart: half a decade.
SPACING = 10.0**0.5


def rate_of(setting: Setting) -> float:
    """Return the rate of a setting."""
    return float(setting["lr"])


def spaced(centre: float, lowest: int, highest: int) -> tuple[Setting, ...]:
    """Return rates half a decade apart, from so many steps below a rate to so many above."""
    return tuple(Setting({"lr": centre * SPACING**n}) for n in range(lowest, highest + 1))


def present(base: Optimizer, settings: Iterable[Setting]) -> int:
    """Return the number of the setting that the base has now; the first if it has none of them."""
    group = base.param_groups[0]
    matches = (n for n, s in enumerate(settings) if all(group.get(o) == s[o] for o in s))
    return next(matches, 0)
