"""Tabu search: the best of some candidates, except those that were used a short while ago."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from annealtune.annealing.acceptance import Verdict
from annealtune.annealing.arguments import count
from annealtune.annealing.neighborhood import Neighborhood, Setting, restored
from annealtune.annealing.strategies.protocol import PlainStrategy


class Tabu(PlainStrategy):
    """Move with the best of some candidates that is not tabu, even if it worsens.

    Every step draws different candidates from H and measures each. A setting that was used
    is tabu for the next ``tenure`` steps, unless (aspiration) it gains more than any move before:

        gain = value - new_value

    Among the admissible candidates the one with the lowest value is taken; if none is
    admissible, the one whose tabu ends first. A move to a value that is not finite is undone, and
    its setting does not become tabu.

    From the literature: short-term memory with a tenure, the aspiration criterion, a sampled
    candidate list, and moving even if it worsens. Our choice: settings are tabu, because
    weights never occur twice; aspiration compares gains, because the losses of different
    minibatches are not comparable; the tenure grows with H.

    Args:
        tenure: for how many steps a setting is tabu, fewer than H has settings; by default a third
            of H, at least 1 if H has two settings or more.
        candidates: how many settings are measured in each step; each costs one evaluation. One
            candidate is a uniform draw among the settings that are not tabu.

    Raises:
        TypeError: if an argument is not a whole number.
        ValueError: if the tenure is negative, or ``candidates`` is smaller than 1.

    Example:
        >>> strategy = Tabu(tenure=1)
        >>> low, high = Setting({"lr": 0.1}), Setting({"lr": 0.9})
        >>> strategy.select(5.0, {low: 4.0, high: 4.5})
        Setting(lr=0.1)
        >>> strategy.observe(low, strategy.decide(5.0, 4.0, random.Random(0)))
        >>> strategy.select(4.0, {low: 3.5, high: 4.5})
        Setting(lr=0.9)

    Reference:
        Glover (1989), Tabu search, part I, ORSA Journal on Computing 1, 190-206; Glover and Laguna
        (1997), Tabu Search, Chapter 2.
    """

    picks_settings = True

    def __init__(self, tenure: int | None = None, candidates: int = 3) -> None:
        self.tenure = None if tenure is None else count("Tabu(tenure=...)", tenure, least=0)
        self.candidates = count("Tabu(candidates=...)", candidates, least=1)
        self._tenure = self.tenure or 0  # the default depends on H
        self._left: dict[Setting, int] = {}  # for how many steps each is tabu
        self._best_gain = -math.inf

    def check(self, neighborhood: Neighborhood) -> None:
        """Refuse a tenure that would leave nothing to pick; compute the default one.

        Raises:
            ValueError: if the tenure is not smaller than H.
        """
        most = len(neighborhood) - 1
        if self.tenure is None:
            self._tenure = min(max(len(neighborhood) // 3, 1), most)
        elif self.tenure > most:
            raise ValueError(
                f"Tabu(tenure=...) must be smaller than the number of settings in H, here "
                f"{len(neighborhood)}, got {self.tenure!r}"
            )

    def pick(self, neighborhood: Neighborhood, rng: random.Random) -> Setting:
        """Pick uniformly among the settings that are not tabu, with exactly one draw."""
        self.check(neighborhood)
        free = [setting for setting in neighborhood if setting not in self._left]
        return free[int(rng.random() * len(free))]

    def shortlist(self, neighborhood: Neighborhood, rng: random.Random) -> tuple[Setting, ...]:
        """Draw the candidates from all of H, without replacement."""
        self.check(neighborhood)
        return tuple(rng.sample(neighborhood, min(self.candidates, len(neighborhood))))

    def select(self, value: float, measured: Mapping[Setting, float]) -> Setting:
        """Choose the best admissible candidate, else the one whose tabu ends first."""
        finite = {setting: new for setting, new in measured.items() if math.isfinite(new)}
        admissible = [
            setting
            for setting, new in finite.items()
            if setting not in self._left or value - new > self._best_gain
        ]
        if admissible:
            return min(admissible, key=finite.__getitem__)
        if finite:
            return min(finite, key=self._left.__getitem__)
        return next(iter(measured))  # all are broken: any of them will be undone

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        """Keep the selected move, whether it improves or worsens."""
        return Verdict.of(value, new_value, accepted=True)

    def observe(self, setting: Setting, verdict: Verdict) -> None:
        """Let one step of every tabu pass; the setting that was used becomes tabu."""
        self._left = {tabu: left - 1 for tabu, left in self._left.items() if left > 1}
        if not verdict.accepted:
            return
        self._best_gain = max(self._best_gain, -verdict.worsening)
        if self._tenure:
            self._left[setting] = self._tenure

    def state_dict(self) -> dict[str, Any]:
        """Return for how long each setting is tabu, and the best gain so far."""
        tabu = [[dict(setting), left] for setting, left in self._left.items()]
        return {"tabu": tabu, "best_gain": self._best_gain}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._left = {restored(options): left for options, left in state["tabu"]}
        self._best_gain = state["best_gain"]

    def __repr__(self) -> str:
        return f"Tabu(tenure={self.tenure!r}, candidates={self.candidates!r})"
