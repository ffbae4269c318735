"""The library with another constant or rule, so that the experiments behind it can be repeated."""

from __future__ import annotations

import contextlib
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any
from unittest import mock

from annealtune.annealing import Setting
from annealtune.annealing import race as rules
from annealtune.annealing.acceptance import metropolis
from annealtune.annealing.race import Difference, Outcome, Standings, paired_difference
from annealtune.optim import average, guard, race, schedule, self_tuner
from annealtune.optim.average import WeightAverage
from annealtune.optim.race import Race, Races, rate_of
from annealtune.optim.self_tuner import Holding, Run

Patch = AbstractContextManager[Any]

# Constants: a name, and the modules that have it.
CONSTANTS: dict[str, tuple[str, tuple[ModuleType, ...]]] = {
    "spacing": ("SPACING", (race,)),
    "below": ("_BELOW", (race,)),
    "above": ("_ABOVE", (race,)),
    "most-races": ("_MOST_RACES", (race,)),
    "clearly": ("_CLEARLY", (rules,)),
    "least-window": ("LEAST_WINDOW", (rules,)),
    "outlier": ("_OUTLIER", (rules,)),
    "learnt": ("_LEARNT", (rules,)),
    "longest": ("_LONGEST", (rules,)),
    "share": ("_SHARE", (rules,)),
    "most": ("_MOST", (rules,)),
    "short-share": ("_SHORT_SHARE", (rules,)),
    "short-most": ("_SHORT_MOST", (rules,)),
    "patience": ("PATIENCE", (rules, race)),
    "anytime-length": ("_ANYTIME", (rules,)),
    "relative-change": ("_RELATIVE_CHANGE", (race,)),
    "centre-steps": ("_STEPS", (race,)),
    "most-cuts": ("_MOST_CUTS", (guard,)),
    "warm-up": ("_WARM_UP", (schedule,)),
    "decay": ("_DECAY", (schedule,)),
    "memory": ("_MEMORY", (average,)),
}


def _draw(_: float) -> Patch:
    """Let the leader give way to the incumbent with probability exp(-d/s), as version 0.2 did."""
    verdict = Standings.verdict

    def drawn(
        self: Standings, incumbent: int, judged: Mapping[int, Sequence[float]] | None = None
    ) -> Outcome:
        outcome = verdict(self, incumbent, judged)
        if incumbent not in self.live or outcome.winner == incumbent:
            return outcome
        values = self.losses if judged is None else judged
        window = slice(-self._window(), None) if judged is None else slice(None)
        worse = paired_difference(values[incumbent][window], values[outcome.winner][window])
        # The same draw however often the race is held to find the length.
        draw = random.Random(repr(self.losses[incumbent][0])).random()
        if metropolis(0.0, *worse, draw=draw).accepted:
            return Outcome(incumbent, "the incumbent, level with the best")
        return outcome

    return mock.patch.object(Standings, "verdict", drawn)


def _corrected(correct: Callable[[Race, int, Outcome], Outcome]) -> Patch:
    """Correct verdicts that come from losses."""
    verdict = Race.verdict

    def corrected(self: Race, incumbent: int) -> Outcome:
        outcome = verdict(self, incumbent)
        return outcome if self._objective is not None else correct(self, incumbent, outcome)

    return mock.patch.object(Race, "verdict", corrected)


def _cautious(_: float) -> Patch:
    """Let a smaller rate than the incumbent's win although it is not clearly better."""
    return mock.patch.object(Races, "_cautious", lambda _, __, outcome: outcome)


def _safer(_: float) -> Patch:
    """Let the next smaller rate win where the next larger one does more harm than two smaller."""

    def correct(race: Race, _: int, outcome: Outcome) -> Outcome:
        arms = sorted(range(len(race.settings)), key=lambda arm: -rate_of(race.settings[arm]))
        place, last = arms.index(outcome.winner), len(arms) - 1
        if not 0 < place < last:
            return outcome
        larger, smaller, smallest = (arms[min(place + n, last)] for n in (-1, 1, 2))
        harm, *cost = (_excess(race, arm, outcome.winner) for arm in (larger, smaller, smallest))
        if harm > sum(cost):
            return Outcome(smaller, "a larger rate would do more harm than a smaller one")
        return outcome

    return _corrected(correct)


def _excess(race: Race, arm: int, other: int) -> float:
    """Return by how much an arm was worse in the second half of what both have."""
    pairs = list(zip(race.standings.losses[arm], race.standings.losses[other], strict=False))
    pairs = pairs[-max(rules.LEAST_WINDOW, len(pairs) // 2) :]
    return statistics.fmean(own - its for own, its in pairs) if pairs else math.nan


def _belief(share: float) -> Patch:
    """Go only a share of the way, in logarithms, from the centre to a winner above it."""
    settled = Races._settled

    def believed(self: Races, winner: Setting) -> Setting:
        chosen = settled(self, winner)
        ratio = rate_of(chosen) / self.centre
        return chosen if ratio <= 1 else Setting({"lr": self.centre * ratio**share})

    return mock.patch.object(Races, "_settled", believed)


def _further(_: float) -> Patch:
    """Hold no race below the lowest rate, even if that one does harm."""
    further = Races._further

    def only_above(self: Races, race: Race, arm: int) -> tuple[Setting, ...]:
        arms = further(self, race, arm)
        return () if arms and rate_of(arms[0]) < rate_of(race.settings[arm]) else arms

    return mock.patch.object(Races, "_further", only_above)


def _stay(count: float) -> Patch:
    """Let this many arms stay to the end of a race; of clear losers the worst is dropped first."""

    def drop_losers(self: Standings) -> None:
        if self.minibatches < rules.LEAST_WINDOW:
            return
        leader = self.leader
        for arm in sorted(self.live, key=self.score, reverse=True):
            worse = Difference(0.0, 0.0) if arm == leader else self.difference(arm, leader)
            if len(self.live) > count and worse.is_clear:
                self.drop(arm, f"clearly worse at minibatch {self.minibatches}")

    return mock.patch.object(Standings, "drop_losers", drop_losers)


def _linear(_: float) -> Patch:
    """Decay the rate linearly from the end of the warm-up on, where the highest arm has won."""
    enter, share_left = Holding.enter, schedule.share_left
    ends = 0.0  # the warm-up; 0 where the decay is as usual

    def noted(self: Holding, run: Run) -> None:
        nonlocal ends
        tried = [rate_of(arm) for info in run.races.infos for arm in info.settings]
        is_highest = bool(tried) and rate_of(self.setting) > 0.99 * max(tried)
        ends = self.began + self.warm_up if is_highest else 0.0
        enter(self, run)

    def left(step: int, total_steps: int | None) -> float:
        if not ends or total_steps is None:
            return share_left(step, total_steps)
        return min(1.0, max(total_steps - step, 1) / (total_steps - ends))

    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(Holding, "enter", noted))
    for module in (schedule, self_tuner):
        stack.enter_context(mock.patch.object(module, "share_left", left))
    return stack


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
    "draw": (_draw, 1),
    "cautious": (_cautious, 0),
    "safer": (_safer, 1),
    "belief": (_belief, None),
    "further": (_further, 0),
    "stay": (_stay, None),
    "linear": (_linear, 1),
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
