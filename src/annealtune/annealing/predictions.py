"""What a setting of H will do to the loss, learned from the moves that were measured."""

from __future__ import annotations

from typing import Any

from annealtune.annealing.neighborhood import Setting
from annealtune.annealing.parabola import Parabola
from annealtune.annealing.strategies.stored_settings import restored, stored

# How far beyond the largest rate measured a parabola is believed.
_REACH = 4.0


class Predictions:
    """One parabola over the rates for every combination of the other options of H.

    A setting without a positive ``lr`` has no rate to follow: its prediction is the mean of what
    it did before.

    Args:
        forgetting: weight of a measurement when the next one of its kind comes.

    Example:
        >>> predictions = Predictions()
        >>> for rate in (0.1, 0.2):
        ...     predictions.learn(Setting({"lr": rate, "momentum": 0.9}), -rate)
        >>> round(predictions.worsening(Setting({"lr": 0.3, "momentum": 0.9})), 6)
        -0.3
    """

    def __init__(self, forgetting: float = 0.98) -> None:
        self._forgetting = forgetting
        self._parabolas: dict[Setting | None, Parabola] = {}

    def learn(self, setting: Setting, worsening: float) -> None:
        """Take in what a move with this setting did."""
        others, rate = _split(setting)
        if others not in self._parabolas:
            self._parabolas[others] = Parabola(self._forgetting)
        self._parabolas[others].learn(rate, worsening)

    def worsening(self, setting: Setting) -> float:
        """Predict what a move does; NaN for a kind of setting that was never measured."""
        others, rate = _split(setting)
        return self._of(others).worsening(rate)

    def measured(self, setting: Setting) -> int:
        """Count the measurements that a prediction for this setting rests on."""
        return self._of(_split(setting)[0]).measured

    def reaches(self, setting: Setting) -> bool:
        """Tell whether the rate is not far beyond all that were measured."""
        others, rate = _split(setting)
        return rate <= _REACH * self._of(others).largest

    def state_dict(self) -> list[tuple[dict[str, Any] | None, dict[str, Any]]]:
        """Return everything as plain data."""
        return [
            (None if others is None else stored(others), parabola.state_dict())
            for others, parabola in self._parabolas.items()
        ]

    def load_state_dict(self, state: list[tuple[dict[str, Any] | None, dict[str, Any]]]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._parabolas = {}
        for options, sums in state:
            parabola = Parabola(self._forgetting)
            parabola.load_state_dict(sums)
            self._parabolas[None if options is None else restored(options)] = parabola

    def _of(self, others: Setting | None) -> Parabola:
        return self._parabolas.get(others) or Parabola(self._forgetting)


def _split(setting: Setting) -> tuple[Setting | None, float]:
    """Return the other options and the rate; the whole setting and 1 where there is no rate."""
    rate = setting.get("lr", 0.0)
    if rate <= 0:
        return setting, 1.0
    others = {name: value for name, value in setting.items() if name != "lr"}
    return Setting(others) if others else None, float(rate)
