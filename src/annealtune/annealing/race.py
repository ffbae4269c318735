"""The rules of a race: who leads, who is dropped, who wins, what it may cost; and its record.

Several copies of a run ("arms") make steps on the same minibatches with different settings. Their
losses are compared minibatch by minibatch, which takes most of the noise away.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from annealtune.annealing.neighborhood import Setting, restored

# An arm is dropped when it is this many standard errors worse than the leader ...
_CLEARLY = 4.0
# ... but not in the first minibatches, where the larger rates gain most, whatever comes after ...
_GRACE = 10
# ... nor while it catches up: while the last difference is less than this part of the mean one.
_CATCHING_UP = 2 / 3
# Losses are compared over at least this many minibatches.
LEAST_WINDOW = 4
# A single difference counts at most this many times the median one, so that an arm that explodes
# is not saved by its own deviation.
_OUTLIER = 3.0
# The loss of an arm has fallen or risen when it differs from the first by this many deviations.
_CHANGED = 2.0

# Minibatches of one race.
_LONGEST = 40
# Extra steps of a race: 4 % of the run, at most 100; in short runs 12 %, at most 32.
_SHARE, _MOST, _SHORT_SHARE, _SHORT_MOST = 0.04, 100, 0.12, 32
# On a plateau, where no arm has learnt anything, so many times as many.
_PATIENCE = 2
# Of all races together: 6 % of the run, in short runs 12 %, at most 240.
_ALL_SHARE, _ALL_SHORT_SHARE, _ALL_SHORT_MOST = 0.06, 0.12, 240
# The length that is assumed if the user gives none.
_ANYTIME = 1000
# A larger loss is a broken one: sums of such losses overflow.
_LARGEST_LOSS = 1e300
# A race over fewer minibatches says nothing.
LEAST_MINIBATCHES = 8


def is_sound(loss: float) -> bool:
    """Tell whether a loss is finite, and so is the sum of all losses of a race."""
    return abs(loss) <= _LARGEST_LOSS  # not true of NaN


def mean_of(losses: Sequence[float]) -> float:
    """Return the mean of losses; NaN where one of them is not sound.

    Example:
        >>> mean_of([1.0, 2.0]), mean_of([1.0, math.inf])
        (1.5, nan)
    """
    return math.fsum(losses) / len(losses) if all(map(is_sound, losses)) else math.nan


class Difference(NamedTuple):
    """The paired difference of two arms: its mean and the standard error of it."""

    mean: float
    error: float

    @property
    def is_clear(self) -> bool:
        """Whether the first arm is clearly worse."""
        return self.mean > 0 and self.mean > _CLEARLY * self.error


def paired_difference(values: Sequence[float], others: Sequence[float]) -> Difference:
    """Compare two arms on the same minibatches; positive is worse.

    Args:
        values: of one arm, at least one.
        others: of the other arm, on the same minibatches.

    Example:
        >>> paired_difference([3.0, 4.0, 6.0], [2.0, 2.0, 3.0])
        Difference(mean=2.0, error=0.5773502691896258)
    """
    differences = [value - other for value, other in zip(values, others, strict=True)]
    bound = _OUTLIER * statistics.median(map(abs, differences))
    clipped = [max(-bound, min(bound, difference)) for difference in differences]
    mean = math.fsum(clipped) / len(clipped)
    if len(clipped) == 1:
        return Difference(mean, 0.0)
    return Difference(mean, statistics.stdev(clipped) / math.sqrt(len(clipped)))


@dataclasses.dataclass(frozen=True)
class Allowance:
    """What a race may cost."""

    minibatches: int  # how many it lasts at the most
    extra_steps: int  # how many steps it may make in addition to one per minibatch
    patient: int  # how many it may make while no arm has learnt anything

    def fits(self, arms: int) -> bool:
        """Whether this many arms can race for long enough to say something."""
        return min(self.minibatches, self.extra_steps // (arms - 1)) >= LEAST_MINIBATCHES


def allowance(total_steps: int | None, spent: int | None = None) -> Allowance:
    """Return what a race may cost in a run of this length.

    That is 4 % of the run in extra steps, at most 100, so 1 % of 10,000 steps; in runs of less than
    800 steps 12 %, at most 32; and twice that on a plateau. A further race, where even the
    lowest rate of the first did harm, may cost half of it. All races together stay below 6 % of a
    run of 4,000 steps or more and 12 % of one of 2,000 or less.

    Args:
        total_steps: planned length of the run; None is unknown.
        spent: extra steps of the races before; None is: this is the first.

    Example:
        >>> allowance(1000)
        Allowance(minibatches=40, extra_steps=40, patient=80)
        >>> allowance(1000, spent=80)
        Allowance(minibatches=40, extra_steps=20, patient=40)
        >>> allowance(100).fits(3)
        False
    """
    length = _ANYTIME if total_steps is None else total_steps
    short, long = min(_SHORT_SHARE * length, _SHORT_MOST), min(_SHARE * length, _MOST)
    extra = math.floor(max(short, long) / (1 if spent is None else 2))
    left = max(min(_ALL_SHORT_SHARE * length, _ALL_SHORT_MOST), _ALL_SHARE * length) - (spent or 0)
    left = max(0, math.floor(left))
    return Allowance(min(_LONGEST, length // 4), min(extra, left), min(_PATIENCE * extra, left))


class Outcome(NamedTuple):
    """Who won a race, and why."""

    winner: int
    reason: str


class Standings:
    """The losses of the arms of one race, and what follows from them.

    Arms are known by their numbers. A loss that is not finite breaks its arm, unless no
    arm has a finite one: then the minibatch is to blame and does not count.

    Args:
        arms: the number of arms.

    Example:
        >>> standings = Standings(2)
        >>> for loss in (2.0, 1.6, 1.3, 1.1):
        ...     standings.add({0: loss, 1: loss + 0.5})
        >>> standings.leader
        0
        >>> standings.verdict(incumbent=1).winner
        0
    """

    def __init__(self, arms: int) -> None:
        self.losses: list[list[float]] = [[] for _ in range(arms)]
        self.live = list(range(arms))
        self.dropped: dict[int, str] = {}
        self.minibatches = 0
        self.spoilt = 0  # minibatches in a row on which no arm had a finite loss

    def add(self, losses: Mapping[int, float]) -> None:
        """Take in the losses of all live arms on one minibatch."""
        finite = {arm for arm, loss in losses.items() if is_sound(loss)}
        if not finite:
            self.spoilt += 1
            return
        longer = [
            [*known, losses[arm]] if arm in finite else known
            for arm, known in enumerate(self.losses)
        ]
        # All at once: the losses of the arms stay paired wherever a run is interrupted.
        self.losses, self.minibatches, self.spoilt = longer, self.minibatches + 1, 0
        for arm in losses.keys() - finite:
            self.drop(arm, f"loss {losses[arm]} at minibatch {self.minibatches}")

    def drop(self, arm: int, reason: str) -> None:
        """Take an arm out of the race."""
        live = [other for other in self.live if other != arm]
        self.live, self.dropped = live, {**self.dropped, arm: reason}

    def drop_losers(self) -> None:
        """Drop the arms that are clearly worse than the leader."""
        if self.minibatches < _GRACE:
            return
        leader = self.leader
        for arm in list(self.live):
            if arm == leader:
                continue
            worse = self.difference(arm, leader)
            last = self.losses[arm][-1] - self.losses[leader][-1]
            if worse.is_clear and last >= _CATCHING_UP * worse.mean:
                self.drop(arm, f"clearly worse at minibatch {self.minibatches}")

    def trend(self, arm: int) -> int:
        """Return 1 if the loss of an arm has clearly risen, -1 if it has fallen, else 0.

        Its last losses are compared with the first one, which is that of the untouched weights.
        """
        losses = self.losses[arm]
        last = losses[1:][-self._window() :]
        if len(last) < LEAST_WINDOW:
            return 0  # too early to tell
        change = statistics.fmean(last) - losses[0]
        error = statistics.stdev(last) * math.sqrt(1 + 1 / len(last))
        return int(change > _CHANGED * error) - int(change < -_CHANGED * error)

    @property
    def leader(self) -> int:
        """The live arm with the lowest score; of equals the first."""
        return min(self.live, key=self.score)

    def score(self, arm: int) -> float:
        """Return the mean loss of an arm over the second half of the race."""
        losses = self.losses[arm][-self._window() :]
        return math.fsum(losses) / len(losses) if losses else math.inf

    def difference(self, arm: int, other: int) -> Difference:
        """Return how much worse an arm is than another over the second half of the race."""
        window = self._window()
        return paired_difference(self.losses[arm][-window:], self.losses[other][-window:])

    def verdict(self, incumbent: int, judged: Mapping[int, float] | None = None) -> Outcome:
        """Return who has won: of the arms that were not dropped the one with the lowest score.

        Args:
            incumbent: the arm that holds what the run has now; it wins if it is level to the digit.
            judged: values of a black-box objective for each live arm, instead of the losses.
        """
        if len(self.live) == 1:
            return Outcome(self.live[0], "the only one left")
        scores = judged or {arm: self.score(arm) for arm in self.live}
        if len(set(scores.values())) == 1 and incumbent in scores:
            return Outcome(incumbent, "the incumbent, as all are level")
        winner = min(scores, key=lambda arm: (scores[arm], arm != incumbent))
        return Outcome(winner, "the best of those that stayed")

    def _window(self) -> int:
        return max(LEAST_WINDOW, self.minibatches // 2)

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return copy.deepcopy(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        vars(self).update(copy.deepcopy(dict(state)))


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
            their number tells when it was dropped.
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
        values = {key: setting[key] for key in differing}
        shown = {k: rate_text(v) if isinstance(v, float) else v for k, v in values.items()}
        return " ".join(f"{key}={value}" for key, value in shown.items())

    def fate(self, arm: int) -> str:
        """Return what became of an arm, in a few words."""
        if arm == self.winner:
            return f"won: {self.reason}"
        return self.dropped.get(arm, "broke" if self.winner is None else "stayed to the end")

    def table(self) -> str:
        """Return the race as text, with one line for each arm and why the winner won."""
        names = [self.name(arm) for arm in range(len(self.settings))]
        width, lines = max(map(len, names)), [f"{self} (from step {self.step})"]
        for arm, name in enumerate(names):
            lines.append(f"  {name:<{width}}  score {self.scores[arm]:<10.4g}  {self.fate(arm)}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for `from_dict`."""
        return {
            **vars(self),
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
            "losses": tuple(map(tuple, plain["losses"])),
        }
        return cls(**{**plain, **found})
