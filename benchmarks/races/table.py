"""Ratios to the oracle, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .methods import TUNERS, at_rate
from .oracle import Records, oracle_rate
from .records import Key

# A run that breaks, or is worse than this, counts as this.
WORST = 1000.0


@dataclass(frozen=True)
class Cell:
    """One method on one task.

    Attributes:
        ratios: to the oracle, one for each seed.
        rates: that were chosen.
        extra: steps of the race beside one a minibatch, over the budget.
    """

    ratios: tuple[float, ...]
    rates: tuple[float, ...]
    extra: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return geometric_mean(self.ratios)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def ratio(test: float | None, best: float) -> float:
    """Return a test loss in units of the oracle's, broken and very bad ones as `WORST`."""
    return WORST if test is None else min(test / best, WORST)


def cell(records: Records, key: Key, seeds: Iterable[int]) -> Cell | None:
    """Return what is known of a method on a task; None if nothing is."""
    best_rate = oracle_rate(records, key)
    found = []
    for seed in seeds if best_rate is not None else ():
        best = records.get(key._replace(seed=seed, method=at_rate(best_rate), variant=""))
        own = _record(records, key._replace(seed=seed))
        if best is not None and own is not None:
            found.append((ratio(own["test"], best["test"]), own))
    if not found:
        return None
    return Cell(
        tuple(value for value, _ in found),
        tuple(record["rate"] for _, record in found),
        tuple(record["extra_steps"] / record["budget"] for _, record in found),
    )


def _record(records: Records, key: Key) -> dict[str, Any] | None:
    # A fixed 3e-3 is one of the grid.
    method = at_rate(3e-3) if key.method == "held-3e-3" else key.method
    return records.get(key._replace(method=method))


def markdown(
    records: Records,
    tasks: Iterable[str],
    seeds: Sequence[int],
    columns: Sequence[tuple[str, str]],
    *,
    base: str,
    length_factor: float,
) -> str:
    """Return the table of one base and one length, without what nothing is known of.

    Args:
        records: by key.
        tasks: rows.
        seeds: over which the geometric mean is taken.
        columns: method and variant.
        base: name of the base.
        length_factor: of the runs.
    """
    keys = [Key(task, 0, base, "", "", length_factor) for task in tasks]
    keys = [key for key in keys if oracle_rate(records, key) is not None]
    shown = []
    for method, variant in columns:
        cells = [cell(records, key._replace(method=method, variant=variant), seeds) for key in keys]
        if any(cells):
            name = " ".join(filter(None, (method, variant)))
            shown += _tuner(name, cells) if method in TUNERS else [[name, *_ratios(cells)]]
    if not shown:
        return "nothing is recorded for this table"
    names = ["task", *(key.task for key in keys), "**geometric mean**", "**worst**"]
    best = [f"{oracle_rate(records, key):g}" for key in keys]
    head, *lines = zip(names, ["oracle's rate", *best, "", ""], *shown, strict=True)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def _ratios(cells: Sequence[Cell | None]) -> list[str]:
    """Return the ratio of each task, the mean of all runs, the worst task."""
    known = [c for c in cells if c is not None]
    mean = geometric_mean([value for c in known for value in c.ratios])
    worst = max(c.ratio for c in known)
    texts = ["" if c is None else f"{c.ratio:.3f}" for c in cells]
    return [*texts, f"**{mean:.3f}**", f"**{worst:.3f}**"]


def _tuner(name: str, cells: Sequence[Cell | None]) -> list[list[str]]:
    """Return three columns: ratios, the rates of the seeds, extra steps."""
    rates = ["" if c is None else ", ".join(f"{rate:.2g}" for rate in c.rates) for c in cells]
    extra = [None if c is None else 100 * math.fsum(c.extra) / len(c.extra) for c in cells]
    known = [share for share in extra if share is not None]
    shares = ["" if share is None else f"{share:.1f} %" for share in extra]
    summary = [f"{math.fsum(known) / len(known):.1f} %", f"{max(known):.1f} %"]
    return [[name, *_ratios(cells)], ["rates", *rates, "", ""], ["extra", *shares, *summary]]
