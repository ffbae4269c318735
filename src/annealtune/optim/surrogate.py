"""Foretells what a tentative step does to the loss, so that most probes are not needed.

The Metropolis rule keeps a move iff ``worsening <= -T ln u``. With u drawn first, the probe only
matters where the prediction lies near that bound.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any, Literal, cast

from annealtune.annealing import Predicted, Screenable, Setting, Strategy
from annealtune.annealing.loss_level import LossLevel
from annealtune.annealing.predictions import Predictions
from annealtune.annealing.slope_ratios import SlopeRatios
from annealtune.optim.step_info import ProbeCount, StepInfo

Probing = Literal["always", "screened"]

# A verdict is foretold if the prediction is so many of its usual errors away from the bound ...
_MARGIN = 3.0
# ... and rests on so many measurements.
_LEAST_MEASURED = 8
# One in so many of the foretold moves is measured all the same: the fit must stay young, and the
# agreement with the full test is known by nothing else.
_MEASURED_ANYWAY = 1 / 24


class Surrogate:
    """Decides which moves are measured and foretells the others.

    Args:
        owner: name of the optimizer's class, for messages.
        strategy: decides on moves; must be able to tell its bound.
        probing: ``"always"`` measures every move.
        seed: of the generator that chooses the moves to compare. It is apart from the tuner's own,
            so that both ways of probing try the same settings with the same draws.

    Raises:
        ValueError: if the way of probing is unknown, or the strategy cannot tell its bound.
    """

    def __init__(self, owner: str, strategy: Strategy, probing: Any, seed: int) -> None:
        if probing not in ("always", "screened"):
            raise ValueError(f"{owner}(probe=...) must be 'always' or 'screened', got {probing!r}")
        if probing == "screened" and not isinstance(strategy, Screenable):
            raise ValueError(
                f"{owner}(probe='screened') must be given a strategy that knows before a move how "
                f"much it may worsen, got {strategy!r}; take probe='always'"
            )
        self._screens = probing == "screened"
        self._rng = random.Random(f"probes of {seed}")
        self._predictions = Predictions()
        self._ratios = SlopeRatios()
        self._slope = 0.0  # size of what the gradient promises of the move under way, if computed
        self._level = LossLevel()
        self._probe_next = False
        self._foretold: bool | None = None  # the verdict of the move that is under way
        self.count = ProbeCount()

    def foretell(
        self,
        strategy: Strategy,
        setting: Setting,
        value: float,
        rng: random.Random,
        slope: Callable[[], float],
    ) -> Predicted | None:
        """Return the value that a move leads to, or None if it must be measured.

        Args:
            strategy: decides on the move.
            setting: of the move.
            value: at its start.
            rng: the strategy's generator.
            slope: computes what the gradient promises of the move.
        """
        self._foretold, self._slope = None, 0.0
        if not self._screens:
            return None
        bound = cast(Screenable, strategy).bound(value, rng)  # as the constructor has found out
        compare = self._rng.random() < _MEASURED_ANYWAY
        worsening = None if bound is None else self._worsening(setting, bound, slope)
        if bound is None or worsening is None:
            return None
        self._foretold = worsening <= bound
        return None if compare or self._probe_next else Predicted(value + worsening)

    def _worsening(
        self, setting: Setting, bound: float, slope: Callable[[], float]
    ) -> float | None:
        """Predict the worsening of a move, if that is sure enough to decide on it."""
        if bound == math.inf:  # whatever it is, it will be kept
            known = self._predictions.measured(setting) >= _LEAST_MEASURED
            sure = known and self._predictions.reaches(setting)
            return self._predictions.worsening(setting) if sure else None
        self._slope = abs(slope())
        worsening = self._slope * self._ratios.mean(setting)
        error = self._slope * self._ratios.deviation(setting)
        known = self._ratios.measured(setting) >= _LEAST_MEASURED
        return worsening if known and abs(worsening - bound) > _MARGIN * error else None

    def learn(self, info: StepInfo) -> None:
        """Take in a move after its verdict."""
        self.count.steps += 1
        self.count.probed += info.probed
        if not self._screens:
            return
        self._level.see(info.loss)
        if info.probed:
            worsening = self._level.within_reason(info.worsening)
            self._predictions.learn(info.setting, worsening)
            if self._slope > 0:
                self._ratios.learn(info.setting, worsening / self._slope)
            if self._foretold is not None and not self._probe_next:
                self.count.compared += 1
                self.count.agreed += self._foretold == info.accepted
            self._probe_next = False
        self._foretold, self._slope = None, 0.0  # the next one may be resolved by hand

    def is_broken(self, value: float) -> bool:
        """Tell whether a loss shows that the move before it should have been measured."""
        return self._level.is_exceeded_by(value)

    def note_rollback(self) -> None:
        """Count a move that was undone late, and have the next one measured."""
        self.count.rolled_back += 1
        self._probe_next = True

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        version, words, next_gauss = self._rng.getstate()
        return {
            "random": [version, list(words), next_gauss],
            "predictions": self._predictions.state_dict(),
            "ratios": self._ratios.state_dict(),
            "level": self._level.state_dict(),
            "probe_next": self._probe_next,
            "count": dataclasses.asdict(self.count),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        version, words, next_gauss = state["random"]
        self._rng.setstate((version, tuple(words), next_gauss))
        self._predictions.load_state_dict(state["predictions"])
        self._ratios.load_state_dict(state["ratios"])
        self._level.load_state_dict(state["level"])
        self._probe_next = state["probe_next"]
        self.count = ProbeCount(**state["count"])
