"""Heat bath: settings are picked by what they are predicted to gain, and hardly one is rejected."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from annealtune.annealing.acceptance import Verdict
from annealtune.annealing.arguments import number
from annealtune.annealing.neighborhood import Neighborhood, Setting
from annealtune.annealing.predictions import Predictions
from annealtune.annealing.strategies.guarded import GuardedStrategy


def boltzmann_shares(worsenings: Sequence[float], tau: float) -> list[float]:
    r"""Return probabilities :math:`\propto e^{-worsening / T}`, where T is ``tau`` best gains.

    Where nothing is predicted to gain, T is ``tau`` times the least worsening instead.

    Args:
        worsenings: the predicted ones, at least one.
        tau: the temperature in units of the best gain; 0 takes the first of the best.

    Example:
        >>> [round(share, 3) for share in boltzmann_shares([-1.0, 0.0, 50.0], tau=1.0)]
        [0.731, 0.269, 0.0]
    """
    best = min(worsenings)
    temperature = tau * abs(best)
    if not temperature > 0:
        first = worsenings.index(best)
        return [float(index == first) for index in range(len(worsenings))]
    weights = [math.exp(-(worsening - best) / temperature) for worsening in worsenings]
    total = sum(weights)
    return [weight / total for weight in weights]


def pick_by_share(shares: Sequence[float], draw: float) -> int:
    """Return the index on which a uniform random number from [0, 1) falls.

    Example:
        >>> pick_by_share([0.25, 0.75], draw=0.3)
        1
    """
    left = draw
    for index, share in enumerate(shares):
        left -= share
        if left < 0:
            return index
    return max(range(len(shares)), key=shares.__getitem__)  # the shares add up to a little less


class HeatBath(GuardedStrategy):
    r"""Sample the setting from its Boltzmann weight instead of rejecting what was tried.

    .. math:: P(h) \propto e^{-\hat w(h) / T}, \qquad T = \tau \max_h (-\hat w(h))

    where :math:`\hat w(h)` is the worsening predicted for the setting h: along the learning rate a
    parabola through the moves measured before, for other options the mean of what they did. The
    temperature is in units of the best predicted gain, so a scaled loss changes no pick.
    A kind of setting that was never measured goes first, with its smallest rate; a rate is tried
    only if it is at most four times the largest measured, or the next one of H.

    A move is undone if its value is not finite or worse by more than a fifth of the loss itself.

    Args:
        tau: the temperature in units of the best predicted gain; 0 always takes the best.

    Raises:
        TypeError: if ``tau`` is no number.
        ValueError: if it is negative or not finite.

    Example:
        >>> strategy, rng = HeatBath(), random.Random(0)
        >>> H = Neighborhood([{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.4}])
        >>> for _ in range(50):
        ...     setting = strategy.pick(H, rng)
        ...     rate = setting["lr"]
        ...     verdict = strategy.decide(1.0, 1 - 2 * rate + 20 * rate**2, rng)
        ...     strategy.observe(setting, verdict)
        >>> strategy.pick(H, rng)
        Setting(lr=0.1)

    Reference:
        Geman and Geman (1984), Stochastic relaxation, Gibbs distributions, and the Bayesian
        restoration of images; the heat bath of Creutz (1980).
    """

    def __init__(self, tau: float = 1.0) -> None:
        if not 0 <= number("HeatBath(tau=...)", tau) < math.inf:
            raise ValueError(f"HeatBath(tau=...) must be finite and not negative, got {tau!r}")
        super().__init__()
        self.tau = tau
        self._predictions = Predictions()
        self._best_gain = 0.0

    @property
    def temperature(self) -> float:
        """The temperature of the last pick, in units of the loss; 0 before it."""
        return self.tau * self._best_gain

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Pick by the Boltzmann weights, with exactly one draw."""
        draw = rng.random()
        ordered = sorted(neighborhood, key=lambda setting: setting.get("lr", 0.0))
        unmeasured = [s for s in ordered if not self._predictions.measured(s)]
        if unmeasured:
            return unmeasured[0]
        near: list[Setting] = []
        beyond: list[Setting] = []
        for setting in ordered:
            (near if self._predictions.reaches(setting) else beyond).append(setting)
        candidates = near + beyond[:1]
        worsenings = [self._predictions.worsening(s) for s in candidates]
        self._best_gain = abs(min(worsenings))
        picked = pick_by_share(boltzmann_shares(worsenings, self.tau), draw)
        self._promised = worsenings[picked]
        return candidates[picked]

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Learn what the setting did."""
        self._predictions.learn(setting, self._level.within_reason(verdict.worsening))

    def state_dict(self) -> dict[str, Any]:
        """Return what was learned."""
        return {
            **super().state_dict(),
            "predictions": self._predictions.state_dict(),
            "best_gain": self._best_gain,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        super().load_state_dict(state)
        self._predictions.load_state_dict(state["predictions"])
        self._best_gain = state["best_gain"]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(tau={self.tau})"
