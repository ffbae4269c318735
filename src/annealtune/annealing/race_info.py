"""The record of a finished race."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from annealtune.annealing.neighborhood import Setting, restored


def rate_text(rate: float) -> str:
    """Return a learning rate as short text.

    Example:
        >>> [rate_text(rate) for rate in (0.00095, 0.006, 0.012, 0.1, 2.0)]
        ['9.5e-4', '6e-3', '0.012', '0.1', '2']
    """
    if rate == 0 or not math.isfinite(rate) or 0.01 <= abs(rate) < 1000:
        return f"{rate:.3g}"
    digits, exponent = f"{rate:.2e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"


@dataclasses.dataclass(frozen=True)
class RaceInfo:
    """One race, immutable.

    ``print(race)`` tells it in one line, `table` with every arm and the reason.

    Attributes:
        step: number of the step at which it began, from 0.
        minibatches: its length.
        settings: the settings of the arms.
        scores: mean losses of the arms over the second half, or the values of an objective; NaN
            for an arm that broke at once.
        dropped: the reason for each arm that was dropped, by its number.
        winner: number of the arm that won; None if all broke.
        reason: why it won.
        rate: the learning rate that was chosen.
        extra_steps: steps that it made in addition to one per minibatch.
        restarted: whether the run went back to its first weights afterwards.
        number: of the race in its run, from 1.
        second: number of the arm that came second; None if there was none or it is not known.
        losses: for each arm its training losses, one for each minibatch that it took part in; so
            their number tells when it was dropped. Empty in records of earlier versions.
    """

    step: int
    minibatches: int
    settings: tuple[Setting, ...]
    scores: tuple[float, ...]
    dropped: dict[int, str]
    winner: int | None
    reason: str
    rate: float
    extra_steps: int
    restarted: bool
    number: int = 1
    second: int | None = None
    losses: tuple[tuple[float, ...], ...] = ()

    def __str__(self) -> str:
        told = [f"{len(self.settings)} arms, {self.minibatches} steps"]
        told.append("no arm was left" if self.winner is None else f"{self.name(self.winner)} won")
        if self.second is not None:
            told.append(f"{self.name(self.second)} second")
        if self.restarted:
            told.append(f"restart at {rate_text(self.rate)}")
        elif self.winner is not None and self.rate != self.settings[self.winner].get("lr"):
            told.append(f"goes on at {rate_text(self.rate)}")
        return f"race {self.number}: {', '.join(told)}"

    def name(self, arm: int) -> str:
        """Return what tells an arm apart from the others: its rate, or all options that differ."""
        setting = self.settings[arm]
        differing = [
            key for key in setting if any(other.get(key) != setting[key] for other in self.settings)
        ]
        if differing == ["lr"] or not differing:
            return rate_text(setting["lr"]) if "lr" in setting else str(setting)
        return " ".join(f"{key}={_short(setting[key])}" for key in differing)

    def fate(self, arm: int) -> str:
        """Return what became of an arm, in a few words."""
        if arm == self.winner:
            return f"won: {self.reason}"
        return self.dropped.get(arm, "broke" if self.winner is None else "stayed to the end")

    def table(self) -> str:
        """Return the race as text, with one line for each arm and why the winner won."""
        arms = range(len(self.settings))
        width = max((len(self.name(arm)) for arm in arms), default=0)
        lines = (
            f"  {self.name(arm):<{width}}  score {self.scores[arm]:<10.4g}  {self.fate(arm)}"
            for arm in arms
        )
        return "\n".join([f"{self} (from step {self.step})", *lines])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for `from_dict`."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            **plain,
            "settings": [dict(s) for s in self.settings],
            "scores": list(self.scores),
            "losses": [list(losses) for losses in self.losses],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> RaceInfo:
        """Read what `to_dict` returned, also after JSON, where keys are text and NaN is null."""
        found = {
            "settings": tuple(map(restored, plain["settings"])),
            "scores": tuple(math.nan if s is None else s for s in plain["scores"]),
            "dropped": {int(arm): reason for arm, reason in plain["dropped"].items()},
            "losses": tuple(map(tuple, plain.get("losses", ()))),
        }
        return cls(**{**plain, **found})


def numbered(races: Iterable[Mapping[str, Any]]) -> list[RaceInfo]:
    """Read the races of a run in order; those of earlier versions do not know their number."""
    return [RaceInfo.from_dict({"number": n, **race}) for n, race in enumerate(races, 1)]


def _short(value: Any) -> str:
    return rate_text(value) if isinstance(value, float) else str(value)
