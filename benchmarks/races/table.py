"""Ratios to the oracle, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .methods import GRIDS, TUNERS, at_rate
from .records import Key

Records = Mapping[Key, dict[str, Any]]

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

    def __str__(self) -> str:
        return f"{geometric_mean(self.ratios):.3f}"


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def oracle_rate(records: Records, key: Key) -> float | None:
    """Return the rate of the grid with the lowest test loss on seed 0; None if one is missing."""
    losses = {}
    for rate in GRIDS[key.base]:
        record = records.get(key._replace(seed=0, method=at_rate(rate), variant=""))
        if record is None:
            return None
        losses[rate] = math.inf if record["test"] is None else record["test"]
    return min(losses, key=lambda rate: losses[rate])


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
    """Return the table of one base and one length.

    Args:
        records: by key.
        tasks: rows, of which those are left out that nothing is known of.
        seeds: over which the geometric mean is taken.
        columns: method and variant.
        base: name of the base.
        length_factor: of the runs.
    """
    rows: dict[str, list[Cell | None]] = {}
    best: dict[str, float] = {}
    for task in tasks:
        key = Key(task, 0, base, "", "", length_factor)
        rate = oracle_rate(records, key)
        if rate is None:
            continue
        cells = [cell(records, key._replace(method=m, variant=v), seeds) for m, v in columns]
        if any(cells):
            best[task], rows[task] = rate, cells
    if not rows:
        return "nothing is recorded for this table"
    columns = [column for n, column in enumerate(columns) if any(r[n] for r in rows.values())]
    shown = [n for n in range(len(next(iter(rows.values())))) if any(r[n] for r in rows.values())]
    heads = [" ".join(filter(None, column)) for column in columns]
    head = ["task", "oracle's rate"]
    for (method, _), name in zip(columns, heads, strict=True):
        head += [name, "rates", "extra"] if method in TUNERS else [name]
    lines = [head, ["---"] * len(head)]
    for task, cells in rows.items():
        line = [task, f"{best[task]:g}"]
        for number, (method, _) in zip(shown, columns, strict=True):
            line += _texts(cells[number], is_tuner=method in TUNERS)
        lines.append(line)
    for name, summary in (("**geometric mean**", geometric_mean), ("**worst**", max)):
        line = [name, ""]
        for number, (method, _) in zip(shown, columns, strict=True):
            known = [r[number] for r in rows.values() if r[number] is not None]
            if summary is max:
                text = f"{max(geometric_mean(c.ratios) for c in known):.3g}"
            else:
                text = f"{geometric_mean([ratio for c in known for ratio in c.ratios]):.3f}"
            extra = [share for c in known for share in c.extra]
            share = f"{100 * (max(extra) if summary is max else sum(extra) / len(extra)):.1f} %"
            line += [f"**{text}**", "", share] if method in TUNERS else [f"**{text}**"]
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _texts(known: Cell | None, *, is_tuner: bool) -> list[str]:
    if known is None:
        return [""] * (3 if is_tuner else 1)
    if not is_tuner:
        return [str(known)]
    rates = ", ".join(f"{rate:.2g}" for rate in known.rates)
    return [str(known), rates, f"{100 * sum(known.extra) / len(known.extra):.1f} %"]
