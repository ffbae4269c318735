"""The oracle: the best rate that was tried, by the mean validation score over three seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from benchmarks.records import Key, Records

from .bases import GRIDS, TRIED_FIRST
from .methods import at_rate

# One seed alone flatters the rate that it happens to like.
_SEEDS = (0, 1, 2)


def grid_seeds(base: str, length_factor: float) -> tuple[int, ...]:
    """Return the seeds on which rates are tried: one in long runs and over rarer bases."""
    return _SEEDS if base in TRIED_FIRST and length_factor == 1.0 else _SEEDS[:1]


def oracle_rate(
    records: Records,
    task: str,
    base: str,
    length_factor: float = 1.0,
    schedule: str = "held",
    score: str = "validation",
) -> float | None:
    """Return the rate that was tried with the lowest geometric mean of a score.

    None while a rate is still to be tried, and if all are broken. Of level rates the lowest.
    """
    rates = tried_rates(records, task, base, length_factor, schedule)
    scores = _means(records, rates, Key(task, 0, base, schedule, "", length_factor), score)
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
    """Return the rates that are tried, as far as they can be told by now.

    Held, at the usual length, those of `TRIED_FIRST`, or the whole grid of a base that has none.
    Along a cosine, and in longer runs, what lies around the best of those, two rates on each side.
    Beyond an end that wins the next rate is tried too, as far as the grid goes.
    """
    if base not in GRIDS:
        return ()
    grid = GRIDS[base]
    if (length_factor, schedule) == (1.0, "held"):
        lowest, highest = TRIED_FIRST.get(base, (grid[0], grid[-1]))
        low, high = grid.index(lowest), grid.index(highest) + 1
    else:
        middle = oracle_rate(records, task, base)
        if middle is None:
            return ()
        low, high = max(grid.index(middle) - 2, 0), min(grid.index(middle) + 3, len(grid))
    key = Key(task, 0, base, schedule, "", length_factor)
    while True:
        rates = grid[low:high]
        scores = _means(records, rates, key, "validation")
        if len(scores) < len(rates):
            return rates
        best = min(scores, key=lambda rate: scores[rate])
        if best == grid[low] and low > 0:
            low -= 1
        elif best == grid[high - 1] and high < len(grid):
            high += 1
        else:
            return rates


def _means(records: Records, rates: Iterable[float], key: Key, score: str) -> dict[float, float]:
    """Return the mean logarithm of a score at each rate; infinite where a run was broken.

    Args:
        records: all of them.
        rates: those with runs on all seeds are returned.
        key: of the runs, the schedule for a method.
        score: name of the score.
    """
    found: dict[float, float] = {}
    for rate in rates:
        method = at_rate(key.method, rate)
        seeds = grid_seeds(key.base, key.length_factor)
        keys = [key._replace(seed=seed, method=method) for seed in seeds]
        if all(each in records for each in keys):
            scores = [records[each].get(score) for each in keys]
            found[rate] = statistics.fmean(
                math.inf if value is None else math.log(max(value, 1e-300)) for value in scores
            )
    return found
