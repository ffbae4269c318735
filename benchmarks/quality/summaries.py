"""Numbers about the records: ratios to the best fixed rate, means, comparisons.

Nothing is formatted here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy import stats

from benchmarks.records import Record, Records

from .methods import at_rate
from .oracle import oracle_rate
from .plan import CENTRE
from .tasks.catalogue import OPEN, TASKS

# What a broken run counts as, in multiples of the oracle's score.
BROKEN = 1000.0
CONFIDENCE = 0.95
OURS = "self-tuned"
# Names for runs at a rate: the best one held, the best one along a cosine, the centre held.
ORACLE, COSINE, HELD_CENTRE = "oracle", "cosine", "held-3e-3"


class Setting(NamedTuple):
    """Over which base, and how many times the usual length."""

    base: str = "adamw"
    length_factor: float = 1.0


ADAMW = Setting()


class Mean(NamedTuple):
    """A geometric mean and its 95 % interval, whose ends are None for fewer than two values."""

    value: float
    low: float | None
    high: float | None
    count: int


class Overall(NamedTuple):
    """One method over several tasks.

    Attributes:
        mean: geometric mean of the tasks' means; the interval is over tasks.
        worst: the largest of the tasks' means.
        worst_task: whose it is.
        within: share of the tasks whose mean is at most 1.1.
        broken: runs without a score.
        runs: all runs.
    """

    mean: Mean
    worst: float
    worst_task: str
    within: float
    broken: int
    runs: int


class Compared(NamedTuple):
    """Two methods on the tasks and seeds that both have.

    Attributes:
        ratio: geometric mean of the first one's scores over the other's, over tasks.
        ahead: on how many tasks the first one's mean is lower.
        tasks: how many there are.
        p: of Wilcoxon's signed-rank test over the tasks, two-sided; None if all are level.
    """

    ratio: Mean
    ahead: int
    tasks: int
    p: float | None


def geometric_mean(values: Sequence[float]) -> Mean | None:
    """Return the mean and Student's interval, both in logarithms; None without values."""
    if not values:
        return None
    logarithms = [math.log(value) for value in values]
    mean, count = fmean(logarithms), len(values)
    if count < 2:
        return Mean(values[0], None, None, count)
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
    half = quantile * stdev(logarithms) / math.sqrt(count)
    return Mean(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)


def is_sealed(task: str) -> bool:
    """Tell whether nothing was chosen by what the tuner does on a task."""
    return task not in OPEN


class Results:
    """What the records say.

    A method is named as in the records, or "oracle", "cosine" (the best rate of the grid by either
    schedule) or "held-3e-3". A variant of SelfTuner is named by its changes, such as "guard=0".

    Args:
        records: as they are read from the file.
        final: score the weights at the end of a run, and choose the best rate by them, instead of
            those at the best look.
    """

    def __init__(self, records: Records, *, final: bool = False) -> None:
        self.records = records
        self._prefix = "final_" if final else ""
        self._runs: dict[tuple[str, str, Setting], dict[int, Record]] = {}
        for key, run in sorted(records.items()):
            setting = Setting(key.base, key.length_factor)
            name = (key.task, key.variant or key.method, setting)
            self._runs.setdefault(name, {})[key.seed] = run
        self._rates: dict[tuple[str, Setting, str], float | None] = {}

    def settings(self) -> list[Setting]:
        return sorted({setting for _, _, setting in self._runs})

    def variants(self, setting: Setting) -> list[str]:
        """Return the variants with runs over a base."""
        found = {key.variant for key in self.records if Setting(key.base, key[-1]) == setting}
        return sorted(found - {""})

    def score(self, run: Record) -> float | None:
        """Return the test score; None if the run is broken or raised."""
        return run.get(f"{self._prefix}test")

    def rate(self, task: str, setting: Setting = ADAMW, schedule: str = "held") -> float | None:
        """Return the oracle's rate, or that of the best cosine."""
        name = (task, setting, schedule)
        if name not in self._rates:
            score = f"{self._prefix}validation"
            self._rates[name] = oracle_rate(self.records, task, *setting, schedule, score)
        return self._rates[name]

    def runs(self, task: str, method: str, setting: Setting = ADAMW) -> dict[int, Record]:
        """Return the runs of a method by seed."""
        if method == HELD_CENTRE:
            method = at_rate("held", CENTRE)
        elif method in (ORACLE, COSINE):
            schedule = "held" if method == ORACLE else "cosine"
            rate = self.rate(task, setting, schedule)
            method = "" if rate is None else at_rate(schedule, rate)
        return self._runs.get((task, method, setting), {})

    def tasks(self, setting: Setting = ADAMW, *, sealed: bool | None = None) -> list[str]:
        """Return the tasks whose oracle is known: sealed ones, open ones, or both."""
        names = {task for task, _, each in self._runs if each == setting}
        ordered = [*(task for task in TASKS if task in names), *sorted(names - TASKS.keys())]
        return [
            task
            for task in ordered
            if self.rate(task, setting) is not None and sealed in (None, is_sealed(task))
        ]

    def spread(self, task: str, setting: Setting = ADAMW) -> float | None:
        """Return by which factor the test scores of the oracle's seeds differ: one deviation."""
        scores = [self.score(run) for run in self.runs(task, ORACLE, setting).values()]
        if len(scores) < 2 or None in scores:
            return None
        return math.exp(stdev(math.log(score) for score in scores if score is not None))

    def ratios(self, task: str, method: str, setting: Setting = ADAMW) -> dict[int, float]:
        """Return test scores divided by those of the oracle, on the seeds that both have.

        A broken run counts as `BROKEN`. A seed on which the oracle is broken is left out.
        """
        others = self.runs(task, ORACLE, setting)
        found = {}
        for seed, run in self.runs(task, method, setting).items():
            other = self.score(others[seed]) if seed in others else None
            if other is not None:
                score = self.score(run)
                found[seed] = BROKEN if score is None else score / other
        return found

    def mean(self, task: str, method: str, setting: Setting = ADAMW) -> Mean | None:
        """Return the geometric mean of the ratios; None without any."""
        return geometric_mean(list(self.ratios(task, method, setting).values()))

    def means(
        self, tasks: Iterable[str], method: str, setting: Setting = ADAMW
    ) -> dict[str, float]:
        """Return the mean ratios of the tasks that have one."""
        found = {task: self.mean(task, method, setting) for task in tasks}
        return {task: mean.value for task, mean in found.items() if mean is not None}

    def overall(
        self, tasks: Iterable[str], method: str, setting: Setting = ADAMW
    ) -> Overall | None:
        """Return the method over the tasks on which it has a ratio; None without any."""
        means = self.means(tasks, method, setting)
        mean = geometric_mean(list(means.values()))
        if mean is None:
            return None
        runs = [run for task in means for run in self.runs(task, method, setting).values()]
        worst = max(means, key=lambda task: means[task])
        within = sum(value <= 1.1 for value in means.values()) / len(means)
        broken = sum(self.score(run) is None for run in runs)
        return Overall(mean, means[worst], worst, within, broken, len(runs))

    def compared(
        self, tasks: Iterable[str], method: str, other: str, setting: Setting = ADAMW
    ) -> Compared | None:
        """Return one method beside another; None if they have no run in common."""
        found = []
        for task in tasks:
            own, its = (self.ratios(task, each, setting) for each in (method, other))
            mean = geometric_mean([own[seed] / its[seed] for seed in own.keys() & its.keys()])
            if mean is not None:
                found.append(mean.value)
        ratio = geometric_mean(found)
        if ratio is None:
            return None
        unlike = [math.log(value) for value in found if value != 1]
        p = float(stats.wilcoxon(unlike).pvalue) if unlike else None
        return Compared(ratio, sum(value < 1 for value in found), len(found), p)

    def chosen_rates(self, task: str, method: str, setting: Setting = ADAMW) -> dict[int, float]:
        """Return the rates that a method ended up with, by seed."""
        runs = self.runs(task, method, setting)
        return {seed: run["rate"] for seed, run in runs.items() if run.get("rate")}

    def extra_steps(self, task: str, method: str, setting: Setting = ADAMW) -> float | None:
        """Return the share of the budget that races have cost, a mean over the seeds."""
        runs = self.runs(task, method, setting).values()
        known = [run["extra_steps"] / run["budget"] for run in runs if "budget" in run]
        return fmean(known) if known else None
