"""How the loss answers to the learning rate along one step: a parabola, fitted as it goes."""

from __future__ import annotations

import math
from typing import Any

from annealtune.annealing.fading import faded

# Below this the rates measured so far are one rate, as far as floating point can tell.
_SAME_RATE = 1e-9


class Parabola:
    r"""The worsening of a minibatch's loss as a function of the rate of its step.

    .. math:: worsening(rate) = a \cdot rate + b \cdot rate^2

    Least squares with forgetting, each measurement weighted by :math:`1 / rate^2`: what is fitted
    is the line ``worsening / rate = a + b rate``, so that small rates count as much as large ones.
    While only one rate has been measured, ``b`` is 0.

    Args:
        forgetting: weight of a measurement when the next one comes.

    Example:
        >>> fit = Parabola()
        >>> for rate in (0.1, 0.2, 0.4):
        ...     fit.learn(rate, -2 * rate + 4 * rate**2)
        >>> round(fit.worsening(0.25), 6), round(fit.best_rate, 6)
        (-0.25, 0.25)

    Reference:
        A step along a fixed direction changes a smooth loss by its Taylor polynomial; the second
        order suffices near the rates that are worth trying.
    """

    def __init__(self, forgetting: float = 0.98) -> None:
        self._forgetting = forgetting
        self._sums = [0.0] * 5  # of 1, rate, rate^2, y, y rate where y = worsening / rate
        self.measured = 0
        self.largest = 0.0  # rate that was measured

    def learn(self, rate: float, worsening: float) -> None:
        """Take in one measurement; one that is not finite says nothing about a parabola."""
        slope = worsening / rate if rate > 0 else math.nan
        if not math.isfinite(slope):
            return
        terms = (1.0, rate, rate * rate, slope, slope * rate)
        self._sums = faded(self._sums, terms, self._forgetting)
        self.measured += 1
        self.largest = max(self.largest, rate)

    @property
    def coefficients(self) -> tuple[float, float]:
        """Slope ``a`` and curvature ``b``; NaN before the first measurement."""
        ones, rates, squares, slopes, products = self._sums
        if ones == 0:
            return math.nan, math.nan
        determinant = ones * squares - rates * rates
        if determinant <= _SAME_RATE * ones * squares:
            return slopes / ones, 0.0
        b = (ones * products - rates * slopes) / determinant
        return (slopes - b * rates) / ones, b

    @property
    def best_rate(self) -> float:
        """The rate of the largest gain, ``-a / 2b``; infinite where the parabola has no bottom.

        NaN where no rate gains anything.
        """
        a, b = self.coefficients
        if not a < 0:
            return math.nan
        return -a / (2 * b) if b > 0 else math.inf

    def worsening(self, rate: float) -> float:
        """Predict what a step with this rate does to the loss; NaN before the first measurement."""
        a, b = self.coefficients
        return rate * (a + b * rate)

    def state_dict(self) -> dict[str, Any]:
        """Return the sums as plain data."""
        return {
            "sums": list(self._sums),
            "measured": self.measured,
            "largest": self.largest,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._sums = list(state["sums"])
        self.measured, self.largest = state["measured"], state["largest"]
