"""What was to be shown, and what came out. The bounds were set down before the first round."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from .shown import label, of_families
from .summaries import (
    ADAMW,
    HELD_CENTRE,
    LONG,
    SGD,
    Mean,
    Overall,
    Records,
    Results,
    Setting,
)
from .tasks.catalogue import FINE_TUNING, FRESH, TASKS

OURS = "self-tuned"
_FINE_TUNING_PEERS = ("prodigy", "schedule-free-adamw", "schedule-free-sgd")


class Target(NamedTuple):
    """One line.

    Attributes:
        name: for `REASONS`.
        where: on which runs.
        what: must hold.
        bound: as text.
        measured: as text; empty if there are no runs.
        holds: None if there are no runs.
    """

    name: str
    where: str
    what: str
    bound: str
    measured: str
    holds: bool | None


def targets(records: Records) -> list[Target]:
    """Return every line, whether it holds or not."""
    results = Results(records)
    return [
        *_against_oracle(results, ADAMW, "sealed", "Sealed half, AdamW", (1.05, 1.20)),
        *_against_oracle(results, ADAMW, "fresh", "Fresh sealed tasks", (1.05, 1.20), FRESH),
        _nothing_broken(results),
        *_ahead(results),
        *_against_oracle(results, LONG, "long", "Sealed half, ten times the length", (1.03, 1.15)),
        *_against_oracle(results, SGD, "sgd", "Sealed half, SGD", (1.10, 1.50)),
        _near(results, ADAMW, "near", "Sealed half, near tasks", 1.03),
        _near(results, LONG, "near-long", "Sealed half, near tasks, ten times the length", 1.01),
        *_fine_tuning(results),
        _with_objective(results),
    ]


def _against_oracle(
    results: Results,
    setting: Setting,
    name: str,
    where: str,
    bounds: tuple[float, float],
    among: Collection[str] | None = None,
) -> Iterator[Target]:
    sealed = results.tasks(setting, sealed=True)
    tasks = sealed if among is None else [task for task in sealed if task in among]
    found = results.overall(tasks, OURS, setting)
    mean_bound, worst_bound = bounds
    yield _bounded(
        f"{name}-mean",
        where,
        "geometric mean over the best fixed rate",
        mean_bound,
        found and found.mean.value,
        found and text_of(found.mean),
    )
    yield _bounded(
        f"{name}-worst",
        where,
        "worst task over the best fixed rate",
        worst_bound,
        found and found.worst,
        found and f"{found.worst:.3f} ({found.worst_task})",
    )


def _bounded(
    name: str, where: str, what: str, bound: float, value: float | None, measured: str | None
) -> Target:
    holds = None if value is None else value <= bound
    return Target(name, where, what, f"≤ {bound:.2f}", measured or "", holds)


def _nothing_broken(results: Results) -> Target:
    found = results.overall(results.tasks(sealed=True), OURS)
    return Target(
        "sealed-broken",
        "Sealed half, AdamW",
        "no broken run",
        "0",
        f"{found.broken} of {found.runs} runs" if found else "",
        found.broken == 0 if found else None,
    )


def _ahead(results: Results) -> Iterator[Target]:
    tasks = results.tasks(sealed=True)
    others = of_families("peer", "control")
    where = "Sealed half, AdamW"
    yield _lowest(
        results,
        tasks,
        others,
        Target("sealed-ahead-mean", where, "mean ahead of every peer and control", "", "", None),
        lambda found: found.mean.value,
    )
    yield _lowest(
        results,
        tasks,
        others,
        Target("sealed-ahead-worst", where, "worst ahead of every peer and control", "", "", None),
        lambda found: found.worst,
    )


def _lowest(
    results: Results,
    tasks: Sequence[str],
    others: Sequence[str],
    line: Target,
    value: Callable[[Overall], float],
) -> Target:
    """Fill in a line that asks for ours below all others, each on the runs that both have."""
    closest: tuple[float, float, str] | None = None
    for method in others:
        both = results.together(tasks, OURS, method)
        if both is not None:
            pair = (value(both[0]), value(both[1]), method)
            if closest is None or pair[0] / pair[1] > closest[0] / closest[1]:
                closest = pair
    if closest is None:
        return line._replace(bound="lowest")
    own_value, other_value, method = closest
    return line._replace(
        bound=f"< {other_value:.3f} ({label(method)})",
        measured=f"{own_value:.3f}",
        holds=own_value < other_value,
    )


def _near(results: Results, setting: Setting, name: str, where: str, bound: float) -> Target:
    tasks = results.near(setting, sealed=True)
    found = results.overall(tasks, OURS, setting, over=HELD_CENTRE)
    what = "geometric mean over a fixed 3e-3"
    value = found and found.mean.value
    return _bounded(name, where, what, bound, value, found and text_of(found.mean))


def _fine_tuning(results: Results) -> Iterator[Target]:
    tasks = [task for task in results.tasks() if task in FINE_TUNING]
    ratios = {task: list(results.ratios(task, OURS).values()) for task in tasks}
    level = {task: is_level(values) for task, values in ratios.items() if values}
    behind = ", ".join(task for task, holds in level.items() if not holds)
    count = f"{sum(level.values())} of {len(level)} tasks" if level else ""
    yield Target(
        "fine-tuning-level",
        "Fine-tuning, both halves",
        "level with the best fixed rate within one standard error",
        "every task",
        f"{count}; behind on {behind}" if behind else count,
        all(level.values()) if level else None,
    )
    yield _lowest(
        results,
        tasks,
        _FINE_TUNING_PEERS,
        Target(
            "fine-tuning-ahead",
            "Fine-tuning, both halves",
            "mean ahead of Prodigy and Schedule-Free",
            "",
            "",
            None,
        ),
        lambda found: found.mean.value,
    )


def is_level(ratios: Sequence[float]) -> bool:
    """Tell whether the mean of the logarithms is at most one standard error above that of 1."""
    logarithms = [math.log(ratio) for ratio in ratios]
    count = len(logarithms)
    error = stdev(logarithms) / math.sqrt(count) if count > 1 else 0.0
    return fmean(logarithms) <= error


def _with_objective(results: Results) -> Target:
    tasks = [task for task in results.tasks() if task in TASKS and TASKS[task].has_objective]
    found = results.overall(tasks, OURS, over=HELD_CENTRE)
    return _bounded(
        "objective",
        "Where the loss does not measure progress",
        "geometric mean over a fixed 3e-3",
        1.00,
        found and found.mean.value,
        found and text_of(found.mean),
    )


def text_of(mean: Mean, digits: int = 3) -> str:
    """Return a mean with its interval, as text."""
    if mean.low is None or mean.high is None:
        return f"{mean.value:.{digits}f}"
    return f"{mean.value:.{digits}f} ({mean.low:.{digits}f} to {mean.high:.{digits}f})"
