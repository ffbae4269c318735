"""The oracle: the fixed rate with the lowest test loss on seed 0.

It is searched on a half-decade grid, and then between the best rate and its neighbors: rates a
factor of 4 apart, as the arms are, would else be closer to a sharp optimum by luck.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .methods import GRIDS, at_rate
from .records import Key

Records = Mapping[Key, dict[str, Any]]

# The search goes outwards from a start, on both sides until a rate is this much worse than the
# best, or two in a row are a little worse.
_MUCH, _LITTLE = 1.2, 1.02
_START_OF_ADAM = 3e-3
# Afterwards one rate on each side of the best one, half-way to the next of the grid.
_HALF_WAY = 1.8


def next_key(records: Records, key: Key) -> Key | None:
    """Return the next run of the search on the task, base and length of a key; None at its end."""
    run, _ = _search(records, key._replace(seed=0, variant=""))
    return run


def oracle_rate(records: Records, key: Key) -> float | None:
    """Return the best rate for the task, base and length of a key; None if the search is on."""
    run, losses = _search(records, key._replace(seed=0, variant=""))
    return None if run is not None else min(losses, key=lambda rate: losses[rate])


def _search(records: Records, key: Key) -> tuple[Key | None, dict[float, float]]:
    """Return the run that is missing, if one is, and the losses of the rates so far."""
    grid = GRIDS[key.base]
    centre = key._replace(method="held-centre")
    if key.base != "adamw" and centre not in records:
        return centre, {}
    middle = _START_OF_ADAM if key.base == "adamw" else records[centre]["rate"]
    start = min(range(len(grid)), key=lambda index: abs(math.log(grid[index] / middle)))
    losses: dict[float, float] = {}
    for side in (grid[start::-1], grid[start + 1 :]):
        worse = 0
        for rate in side:
            run = key._replace(method=at_rate(rate))
            if run not in records:
                return run, losses
            losses[rate] = _loss(records[run])
            best = min(losses.values())
            worse = worse + 1 if losses[rate] > _LITTLE * best else 0
            if worse == 2 or losses[rate] > _MUCH * best:
                break
    best_rate = min(losses, key=lambda rate: losses[rate])
    for rate in (best_rate / _HALF_WAY, best_rate * _HALF_WAY):
        run = key._replace(method=at_rate(float(f"{rate:.2g}")))
        if run not in records:
            return run, losses
        losses[_rate(run)] = _loss(records[run])
    return None, losses


def _rate(run: Key) -> float:
    return float(run.method.removeprefix("rate-"))


def _loss(record: Mapping[str, Any]) -> float:
    return math.inf if record["test"] is None else record["test"]
