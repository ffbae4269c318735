"""The oracle: the best rate that was tried, by the mean validation score over three seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from .bases import GRIDS
from .methods import at_rate
from .records import Key, Records

# One seed alone flatters the rate that it happens to like. Runs of ten times the length have one.
GRID_SEEDS = (0, 1, 2)


def grid_seeds(length_factor: float) -> tuple[int, ...]:
    """Return the seeds on which rates are tried."""
    return GRID_SEEDS if length_factor == 1.0 else GRID_SEEDS[:1]


def oracle_rate(
    records: Records,
    task: str,
    base: str,
    length_factor: float = 1.0,
    schedule: str = "held",
) -> float | None:
    """Return the rate that was tried with the lowest geometric mean of validation scores.

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
    """Return the rates that are tried, as far as they can be told by now.

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
    """Return the mean logarithms of the validation scores; infinite where a run was broken."""
    found: dict[float, float] = {}
    for rate in rates:
        method = at_rate(schedule, rate)
        keys = [
            Key(task, seed, base, method, "", length_factor) for seed in grid_seeds(length_factor)
        ]
        if all(key in records for key in keys):
            scores = [records[key].get("validation") for key in keys]
            found[rate] = statistics.fmean(
                math.inf if score is None else math.log(max(score, 1e-300)) for score in scores
            )
    return found
