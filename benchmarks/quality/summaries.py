"""Numbers about the records: ratios to the best fixed rate, means, ranks, shares.

Nothing is formatted here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy import stats

from .bases import GRIDS
from .methods import at_rate
from .records import Key, Record
from .tasks.catalogue import OPEN, TASKS

# What a broken run counts as, in multiples of the oracle's score.
BROKEN = 1000.0
CONFIDENCE = 0.95
GRID_SEED = 0
# Where the centre of AdamW's first race is, and the best rates that are called near it.
CENTRE, NEAR_RATES = 3e-3, (1e-3, 3e-3)
# Names for runs at a rate: the best one held, the best one along a cosine, the centre held.
ORACLE, COSINE, HELD_CENTRE = "oracle", "cosine", "held-3e-3"

Records = Mapping[Key, Record]


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


def oracle_rate(
    records: Records,
    task: str,
    base: str,
    length_factor: float = 1.0,
    schedule: str = "held",
) -> float | None:
    """Return the rate that was tried with the lowest validation score on seed 0.

    None while a rate is still to be tried, and if all are broken. Of level rates the lowest.
    """
    rates = tried_rates(records, task, base, length_factor, schedule)
    scores = _validation(records, rates, task, base, length_factor, schedule)
    if not rates or len(scores) < len(rates):
        return None
    best = min(scores, key=lambda rate: scores[rate])
    return best if math.isfinite(scores[best]) else None


def tried_rates(
    records: Records,
    task: str,
    base: str,
    length_factor: float = 1.0,
    schedule: str = "held",
) -> Sequence[float]:
    """Return the rates that are tried on seed 0, as far as they can be told by now.

    Held, at the usual length, that is the whole grid. Along a cosine, and in longer runs, it is
    what lies around the best of those: two rates on each side, and more beyond an end that wins.
    """
    grid = GRIDS.get(base, ())
    if (length_factor, schedule) == (1.0, "held"):
        return grid
    middle = oracle_rate(records, task, base)
    if middle is None:
        return ()
    low, high = max(grid.index(middle) - 2, 0), min(grid.index(middle) + 3, len(grid))
    while True:
        rates = grid[low:high]
        scores = _validation(records, rates, task, base, length_factor, schedule)
        if len(scores) < len(rates):
            return rates
        best = min(scores, key=lambda rate: scores[rate])
        if best == grid[low] and low > 0:
            low -= 1
        elif best == grid[high - 1] and high < len(grid):
            high += 1
        else:
            return rates


def _validation(
    records: Records,
    rates: Iterable[float],
    task: str,
    base: str,
    length_factor: float,
    schedule: str,
) -> dict[float, float]:
    """Return the validation scores of the rates that have been tried; infinite for broken runs."""
    keys = {
        rate: Key(task, GRID_SEED, base, at_rate(schedule, rate), "", length_factor)
        for rate in rates
    }
    known = {rate: records[key].get("validation") for rate, key in keys.items() if key in records}
    return {rate: math.inf if score is None else score for rate, score in known.items()}


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
        self._means: dict[tuple[str, str, Setting, str], Mean | None] = {}

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

    def is_near(self, task: str) -> bool | None:
        """Tell whether AdamW's best rate is 1e-3 or 3e-3; None if not known."""
        rate = self.rate(task)
        return None if rate is None else rate in NEAR_RATES

    def near(self, setting: Setting = ADAMW, *, sealed: bool | None = None) -> list[str]:
        return [task for task in self.tasks(setting, sealed=sealed) if self.is_near(task)]

    def ratios(
        self, task: str, method: str, setting: Setting = ADAMW, over: str = ORACLE
    ) -> dict[int, float]:
        """Return test scores divided by those of another method, on the seeds that both have.

        A broken run counts as `BROKEN`. A seed on which the other method is broken is left out.
        """
        others = self.runs(task, over, setting)
        found = {}
        for seed, run in self.runs(task, method, setting).items():
            other = score_of(others[seed]) if seed in others else None
            if other is not None:
                score = score_of(run)
                found[seed] = BROKEN if score is None else score / other
        return found

    def mean(
        self, task: str, method: str, setting: Setting = ADAMW, over: str = ORACLE
    ) -> Mean | None:
        """Return the geometric mean of the ratios; None without any."""
        name = (task, method, setting, over)
        if name not in self._means:
            ratios = self.ratios(task, method, setting, over)
            self._means[name] = geometric_mean(list(ratios.values()))
        return self._means[name]

    def means(
        self, tasks: Iterable[str], method: str, setting: Setting = ADAMW, over: str = ORACLE
    ) -> dict[str, float]:
        """Return the mean ratios of the tasks that have one."""
        found = {task: self.mean(task, method, setting, over) for task in tasks}
        return {task: mean.value for task, mean in found.items() if mean is not None}

    def overall(
        self, tasks: Iterable[str], method: str, setting: Setting = ADAMW, over: str = ORACLE
    ) -> Overall | None:
        """Return the method over the tasks on which it has a ratio; None without any."""
        means = self.means(tasks, method, setting, over)
        mean = geometric_mean(list(means.values()))
        if mean is None:
            return None
        runs = [run for task in means for run in self.runs(task, method, setting).values()]
        worst = max(means, key=lambda task: means[task])
        broken = sum(score_of(run) is None for run in runs)
        return Overall(mean, means[worst], worst, broken, len(runs))

    def together(
        self, tasks: Iterable[str], method: str, other: str, setting: Setting = ADAMW
    ) -> tuple[Overall, Overall] | None:
        """Return two methods on the runs that both have: the same tasks, the same seeds."""
        found: dict[str, dict[str, float]] = {method: {}, other: {}}
        broken, runs = dict.fromkeys(found, 0), 0
        for task in tasks:
            ratios = {name: self.ratios(task, name, setting) for name in found}
            seeds = ratios[method].keys() & ratios[other].keys()
            runs += len(seeds)
            for name in found if seeds else ():
                mean = geometric_mean([ratios[name][seed] for seed in sorted(seeds)])
                assert mean is not None
                found[name][task] = mean.value
                broken[name] += sum(ratios[name][seed] == BROKEN for seed in seeds)
        if not runs:
            return None
        pair = []
        for name, means in found.items():
            mean = geometric_mean(list(means.values()))
            assert mean is not None
            worst = max(means, key=lambda task: means[task])
            pair.append(Overall(mean, means[worst], worst, broken[name], runs))
        return pair[0], pair[1]

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
