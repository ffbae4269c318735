"""The oracle: the best rate that was tried, by the validation score of one seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from .bases import GRIDS
from .methods import at_rate
from .records import Key, Records

GRID_SEED = 0


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
