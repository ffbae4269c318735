"""How much of what the gradient promises a setting delivers."""

from __future__ import annotations

import math
from typing import Any

from annealtune.annealing.fading import deviation, faded
from annealtune.annealing.neighborhood import Setting
from annealtune.annealing.strategies.stored_settings import restored, stored

_FORGETTING = 0.95


class SlopeRatios:
    r"""Mean and deviation, per setting, of the worsening in units of the slope.

    The gradient promises that a displacement d of the weights changes the loss by the slope
    :math:`v \cdot d`. A small rate delivers just that (the ratio is -1), a larger one less, a
    reckless one the opposite. The ratio scatters far less from minibatch to minibatch than the
    worsening itself.

    Example:
        >>> ratios, small = SlopeRatios(), Setting({"lr": 0.01})
        >>> for ratio in (-1.0, -0.8):
        ...     ratios.learn(small, ratio)
        >>> round(ratios.mean(small), 2), round(ratios.deviation(small), 2)
        (-0.9, 0.1)
    """

    def __init__(self) -> None:
        self._sums: dict[Setting, list[float]] = {}  # of 1, the ratio, its square
        self._counts: dict[Setting, int] = {}

    def learn(self, setting: Setting, ratio: float) -> None:
        """Take in what a move delivered; one that is not finite delivered nothing to learn from."""
        if math.isfinite(ratio):
            old = self._sums.get(setting, [0.0] * 3)
            terms = (1.0, ratio, ratio * ratio)
            self._sums[setting] = faded(old, terms, _FORGETTING)
            self._counts[setting] = self.measured(setting) + 1

    def measured(self, setting: Setting) -> int:
        """Count the moves with this setting that were measured."""
        return self._counts.get(setting, 0)

    def mean(self, setting: Setting) -> float:
        """Return the mean ratio; NaN before the first."""
        weight, total, _ = self._sums.get(setting, [1.0, math.nan, 0.0])
        return total / weight

    def deviation(self, setting: Setting) -> float:
        """Return the standard deviation of the ratio; infinite before the first."""
        return deviation(*self._sums[setting]) if setting in self._sums else math.inf

    def state_dict(self) -> list[tuple[dict[str, Any], list[float], int]]:
        """Return everything as plain data."""
        return [(stored(s), list(sums), self._counts[s]) for s, sums in self._sums.items()]

    def load_state_dict(self, state: list[tuple[dict[str, Any], list[float], int]]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._sums, self._counts = {}, {}
        for options, sums, count in state:
            setting = restored(options)
            self._sums[setting], self._counts[setting] = list(sums), count
