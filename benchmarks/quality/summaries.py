"""Numbers about the records: means, intervals, paired differences, ranks. Nothing is formatted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy import stats

from .methods import SHOWN
from .records import Record, latest
from .tasks import TASKS

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean and its 95 % t-interval, whose ends are None for fewer than two values."""

    mean: float
    low: float | None
    high: float | None


class Summary(NamedTuple):
    """One method on one task under one variant.

    Attributes:
        task, method, variant: what was run.
        scores: the test metric by seed, of the runs that finished.
        losses: the test loss by seed.
        validation: mean validation metric; None if no run finished.
        failures: the reason by seed, of the runs that did not.
        cost: mean cost in forwards; of failed runs too, as far as they came.
        budget: what it could spend.
        probe_share: mean share of steps that were probed; None for methods that are not ours.
        rates: the learning rates it was given.
        search_cost: what it took to choose the rate, in forwards; 0 if nothing was chosen.
        is_edge: whether the chosen rate is the first or the last of those it was chosen from.
        cut: runs that had spent the budget before their planned end.
        seconds: mean CPU time of a run.
    """

    task: str
    method: str
    variant: str
    scores: dict[int, float]
    losses: dict[int, float]
    validation: float | None
    failures: dict[int, str]
    cost: float | None
    budget: float | None
    probe_share: float | None
    rates: tuple[float, ...]
    search_cost: float
    is_edge: bool
    cut: int
    seconds: float | None

    @property
    def interval(self) -> Interval | None:
        """Mean and interval of the test metric; None if no run finished."""
        return t_interval(list(self.scores.values()))

    @property
    def deviation(self) -> float | None:
        """Sample deviation of the test metric, None for fewer than two runs."""
        return stdev(self.scores.values()) if len(self.scores) > 1 else None


def t_interval(values: Sequence[float]) -> Interval | None:
    """Return the mean and its interval by Student's distribution; None without values."""
    if not values:
        return None
    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
    half = quantile * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def paired_difference(first: Mapping[int, float], second: Mapping[int, float]) -> Interval | None:
    """Return first minus second over the seeds that both finished."""
    return t_interval([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])


def summarize(records: Iterable[Record], scale: float = 1.0) -> list[Summary]:
    """Return a summary for every task, variant and method that has a run, in the order of both."""
    known = [record for record in latest(records).values() if record["scale"] == scale]
    variants = sorted({r["variant"] for r in known if not r["is_search"]}, key=variant_order)
    found = []
    for task in TASKS:
        for variant in variants:
            for method in SHOWN:
                name = (task, method, variant)
                runs = [r for r in known if not r["is_search"] and _name(r) == name]
                if runs:
                    searched = [r for r in known if r["is_search"] and _name(r) == name]
                    found.append(_summarize(name, runs, searched))
    return found


def variant_order(variant: str) -> tuple[str, float]:
    """Return what variants are sorted by: kind, then factor; the plain run first."""
    kind, _, factor = variant.partition("=")
    return kind, float(factor or 1)


def _name(record: Record) -> tuple[str, str, str]:
    return record["task"], record["method"], record["variant"]


def _summarize(name: tuple[str, str, str], runs: list[Record], searched: list[Record]) -> Summary:
    finished = [r for r in runs if r["status"] == "finished"]
    rates = tuple(sorted({r["options"]["lr"] for r in runs if "lr" in r["options"]}))
    offered = SHOWN[name[1]].rates
    return Summary(
        *name,
        scores={r["seed"]: r["test"]["metric"] for r in finished},
        losses={r["seed"]: r["test"]["loss"] for r in finished},
        validation=_mean(r["validation"]["metric"] for r in finished),
        failures={r["seed"]: r["reason"] for r in runs if r["status"] != "finished"},
        cost=_mean(r["cost"] for r in runs if "cost" in r),
        budget=_mean(r["budget"] for r in runs if "budget" in r),
        probe_share=_mean(r["probe_share"] for r in finished if "probe_share" in r),
        rates=rates,
        search_cost=sum(r.get("cost", 0) for r in searched),
        is_edge=bool(offered) and any(rate in (offered[0], offered[-1]) for rate in rates),
        cut=sum(r["steps"] < r["steps_planned"] for r in finished),
        seconds=_mean(r["seconds"] for r in runs if "seconds" in r),
    )


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return fmean(values) if values else None


def reference_of(summaries: Iterable[Summary], task: str) -> Summary | None:
    """Return the tuned reference that is better on a task's validation part; None without one."""
    sign = 1 if TASKS[task].higher_is_better else -1
    known = [
        s
        for s in summaries
        if s.task == task and not s.variant and SHOWN[s.method].family == "reference"
        if s.validation is not None
    ]
    return max(known, key=lambda s: sign * s.validation) if known else None


def ranks(summaries: Iterable[Summary]) -> dict[str, dict[str, float]]:
    """Return the rank of each method on each task, 1 the best, by the mean of the test metric.

    A run that failed has the worst result there is: a method with failures comes after all
    without, more failures after fewer. Methods that are level share the mean of their ranks. Only
    methods with runs on every task are ranked, so that all are ranked among the same.
    """
    plain = [s for s in summaries if not s.variant]
    tasks = list(dict.fromkeys(s.task for s in plain))
    methods = [m for m in SHOWN if len({s.task for s in plain if s.method == m}) == len(tasks)]
    found: dict[str, dict[str, float]] = {method: {} for method in methods}
    for task in tasks:
        sign = -1 if TASKS[task].higher_is_better else 1
        keys = {}
        for s in plain:
            if s.task == task and s.method in found:
                mean = fmean(s.scores.values()) if s.scores else math.inf
                keys[s.method] = (len(s.failures), not s.scores, sign * mean)
        for method, key in keys.items():
            better = sum(other < key for other in keys.values())
            level = sum(other == key for other in keys.values())
            found[method][task] = better + (level + 1) / 2
    return found


def mean_ranks(summaries: Iterable[Summary]) -> dict[str, float]:
    """Return the mean rank over the tasks, best method first."""
    means = {method: fmean(by_task.values()) for method, by_task in ranks(summaries).items()}
    return dict(sorted(means.items(), key=lambda item: item[1]))
