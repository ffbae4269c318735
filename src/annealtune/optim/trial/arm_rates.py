"""The settings of arms in the order of their rates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch.optim import Optimizer

from annealtune.annealing import Setting

# Rates of the arms are this factor apart.
SPACING = 4.0


def rate_of(setting: Setting) -> float:
    """Return the rate of a setting."""
    return float(setting["lr"])


def spaced(centre: float, lowest: int, highest: int) -> tuple[Setting, ...]:
    """Return rates a factor of 4 apart, from that power of it to this one."""
    return tuple(Setting({"lr": centre * SPACING**n}) for n in range(lowest, highest + 1))


def falling(settings: Sequence[Setting]) -> list[int]:
    """Return the arms in falling order of their rate; none where rates do not tell them apart."""
    rates = [rate_of(setting) for setting in settings]
    if len(set(rates)) < len(rates):
        return []
    return sorted(range(len(rates)), key=lambda arm: -rates[arm])


def present(base: Optimizer, settings: Iterable[Setting]) -> int:
    """Return the number of the setting that the base has now; the first if it has none of them."""
    group = base.param_groups[0]
    matches = (n for n, s in enumerate(settings) if all(group.get(o) == s[o] for o in s))
    return next(matches, 0)
