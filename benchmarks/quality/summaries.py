"""Numbers about the records: ratios to the best fixed rate, means, ranks, shares.

Nothing is formatted here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy import stats

from .bases import GRIDS
from .methods import at_rate
from .oracle import oracle_rate
from .records import Record, Records
from .tasks.catalogue import OPEN, TASKS

# What a broken run counts as, in multiples of the oracle's score.
BROKEN = 1000.0
CONFIDENCE = 0.95
# Where the centre of AdamW's first race is, and the best rates that are called near it.
CENTRE, NEAR_RATES = 3e-3, (1e-3, 3e-3)
# Names for runs at a rate: the best one held, the best one along a cosine, the centre held.
ORACLE, COSINE, HELD_CENTRE = "oracle", "cosine", "held-3e-3"


class Setting(NamedTuple):
    """Over which base, and how many times the usual length."""

    base: str = "adamw"
    length_factor: float = 1.0


ADAMW = Setting()
SGD = Setting("sgd")
LONG = Setting("adamw", 10.0)


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
        broken: runs without a score.
        runs: all runs.
    """

    mean: Mean
    worst: float
    worst_task: str
    broken: int
    runs: int


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


def score_of(run: Record) -> float | None:
    """Return the test score; None if the run is broken or raised."""
    return run.get("test")


class Results:
    """What the records say, variants of the library left out.

    A method is named as in the records, or "oracle", "cosine" (the best rate of the grid by either
    schedule) or "held-3e-3".

    Args:
        records: as they are read from the file.
    """

    def __init__(self, records: Records) -> None:
        self.records = {key: run for key, run in records.items() if not key.variant}
        self._runs: dict[tuple[str, str, Setting], dict[int, Record]] = {}
        for key, run in sorted(self.records.items()):
            name = (key.task, key.method, Setting(key.base, key.length_factor))
            self._runs.setdefault(name, {})[key.seed] = run
        self._rates: dict[tuple[str, Setting, str], float | None] = {}
        self._means: dict[tuple[str, str, Setting, str, str], Mean | None] = {}

    def settings(self) -> list[Setting]:
        return sorted({setting for _, _, setting in self._runs})

    def seeds(self) -> list[int]:
        return sorted({key.seed for key in self.records})

    def rate(self, task: str, setting: Setting = ADAMW, schedule: str = "held") -> float | None:
        """Return the oracle's rate, or that of the best cosine."""
        name = (task, setting, schedule)
        if name not in self._rates:
            self._rates[name] = oracle_rate(self.records, task, *setting, schedule)
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
        scores = [score_of(run) for run in self.runs(task, ORACLE, setting).values()]
        if len(scores) < 2 or None in scores:
            return None
        return math.exp(stdev(math.log(score) for score in scores if score is not None))

    def is_near(self, task: str) -> bool | None:
        """Tell whether AdamW's best rate is 1e-3 or 3e-3; None if not known."""
        rate = self.rate(task)
        return None if rate is None else rate in NEAR_RATES

    def near(self, setting: Setting = ADAMW, *, sealed: bool | None = None) -> list[str]:
        return [task for task in self.tasks(setting, sealed=sealed) if self.is_near(task)]

    def ratios(
        self,
        task: str,
        method: str,
        setting: Setting = ADAMW,
        over: str = ORACLE,
        beside: str = "",
    ) -> dict[int, float]:
        """Return test scores divided by those of another method, on the seeds that both have.

        A broken run counts as `BROKEN`. A seed on which the other method is broken is left out, and
        so is one that a third method does not have, if one is given to be shown beside.
        """
        others = self.runs(task, over, setting)
        found = {}
        for seed, run in self._shared(task, method, setting, beside).items():
            other = score_of(others[seed]) if seed in others else None
            if other is not None:
                score = score_of(run)
                found[seed] = BROKEN if score is None else score / other
        return found

    def _shared(self, task: str, method: str, setting: Setting, beside: str) -> dict[int, Record]:
        """Return the runs of a method; only on the seeds of another, if one is given."""
        runs = self.runs(task, method, setting)
        if not beside:
            return runs
        return {seed: runs[seed] for seed in runs if seed in self.runs(task, beside, setting)}

    def mean(
        self,
        task: str,
        method: str,
        setting: Setting = ADAMW,
        over: str = ORACLE,
        beside: str = "",
    ) -> Mean | None:
        """Return the geometric mean of the ratios; None without any."""
        name = (task, method, setting, over, beside)
        if name not in self._means:
            ratios = self.ratios(task, method, setting, over, beside)
            self._means[name] = geometric_mean(list(ratios.values()))
        return self._means[name]

    def means(
        self,
        tasks: Iterable[str],
        method: str,
        setting: Setting = ADAMW,
        over: str = ORACLE,
        beside: str = "",
    ) -> dict[str, float]:
        """Return the mean ratios of the tasks that have one."""
        found = {task: self.mean(task, method, setting, over, beside) for task in tasks}
        return {task: mean.value for task, mean in found.items() if mean is not None}

    def overall(
        self,
        tasks: Iterable[str],
        method: str,
        setting: Setting = ADAMW,
        over: str = ORACLE,
        beside: str = "",
    ) -> Overall | None:
        """Return the method over the tasks on which it has a ratio; None without any."""
        means = self.means(tasks, method, setting, over, beside)
        mean = geometric_mean(list(means.values()))
        if mean is None:
            return None
        shared = (self._shared(task, method, setting, beside) for task in means)
        runs = [run for found in shared for run in found.values()]
        worst = max(means, key=lambda task: means[task])
        broken = sum(score_of(run) is None for run in runs)
        return Overall(mean, means[worst], worst, broken, len(runs))

    def together(
        self, tasks: Sequence[str], method: str, other: str, setting: Setting = ADAMW
    ) -> tuple[Overall, Overall] | None:
        """Return two methods on the runs that both have: the same tasks, the same seeds."""
        own = self.overall(tasks, method, setting, beside=other)
        its = self.overall(tasks, other, setting, beside=method)
        return None if own is None or its is None else (own, its)

    def share_within(
        self, tasks: Iterable[str], method: str, factor: float, setting: Setting = ADAMW
    ) -> float | None:
        """Return the share of tasks on which the mean ratio is at most a factor."""
        means = self.means(tasks, method, setting)
        return sum(mean <= factor for mean in means.values()) / len(means) if means else None

    def mean_ranks(
        self, tasks: Sequence[str], methods: Iterable[str], setting: Setting = ADAMW
    ) -> dict[str, float]:
        """Return the mean rank over the tasks, 1 the best, of the methods that have all of them.

        Methods that are level share the mean of their ranks.
        """
        means = {method: self.means(tasks, method, setting) for method in methods}
        means = {method: found for method, found in means.items() if len(found) == len(tasks) > 0}
        return {
            method: fmean(_rank(own[task], [m[task] for m in means.values()]) for task in tasks)
            for method, own in means.items()
        }

    def chosen_rates(self, task: str, method: str, setting: Setting = ADAMW) -> dict[int, float]:
        """Return the rates that a method ended up with, by seed."""
        runs = self.runs(task, method, setting)
        return {seed: run["rate"] for seed, run in runs.items() if run.get("rate")}

    def mean_of(
        self, tasks: Iterable[str], method: str, value: str, setting: Setting = ADAMW
    ) -> float | None:
        """Return the mean over all runs of a number in the records, per unit of the budget."""
        runs = [run for task in tasks for run in self.runs(task, method, setting).values()]
        known = [run[value] / run["budget"] for run in runs if run.get(value) is not None]
        return fmean(known) if known else None

    def time_ratio(
        self, tasks: Iterable[str], method: str, setting: Setting = ADAMW
    ) -> Mean | None:
        """Return the seconds of a run over those of the oracle's on the same seed.

        Broken runs, which end early, are left out.
        """
        found = []
        for task in tasks:
            others = self.runs(task, ORACLE, setting)
            for seed, run in self.runs(task, method, setting).items():
                pair = (run, others.get(seed, {}))
                if all(score_of(each) is not None and each.get("seconds") for each in pair):
                    found.append(run["seconds"] / others[seed]["seconds"])
        return geometric_mean(found)


def search_runs(base: str) -> int:
    """Return how many runs it takes to find the oracle."""
    return len(GRIDS[base])


def _rank(value: float, values: Sequence[float]) -> float:
    better = sum(other < value for other in values)
    level = sum(other == value for other in values)
    return better + (level + 1) / 2
