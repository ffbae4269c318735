"""The tables of the page and of the Markdown files."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from .bases import GRIDS
from .methods import VERSION
from .shown import SHOWN, label
from .summaries import (
    ADAMW,
    BROKEN,
    COSINE,
    HELD_CENTRE,
    ORACLE,
    Mean,
    Overall,
    Results,
    Setting,
    score_of,
    search_runs,
)
from .targets import OURS

# Up to which ratio a cell has which shade.
_TONES = ((1.05, "best"), (1.2, "good"), (2.0, "fair"), (float("inf"), "poor"))
NOT_RUN = "–"


class Cell(NamedTuple):
    """What stands in one place of a table.

    Attributes:
        text: is shown.
        order: what the cell is sorted by; the text if there is none.
        detail: smaller, below it.
        tone: the name of its shade.
        is_strong: whether it is the best of its row, or ours.
    """

    text: str
    order: float | None = None
    detail: str = ""
    tone: str = ""
    is_strong: bool = False


class Table(NamedTuple):
    """Titles, rows, and rows that stay below when the others are sorted."""

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    footer: Sequence[tuple[Cell, ...]] = ()


def methods_of(results: Results, tasks: Sequence[str], setting: Setting = ADAMW) -> list[str]:
    """Return the methods with runs, in the order in which they are shown; unknown ones last."""
    others = {key.method for key in results.records if "-at-" not in key.method} - SHOWN.keys()
    # A rate that suits Adam says nothing about other bases.
    unfit = set() if setting.base == ADAMW.base else {HELD_CENTRE}
    ordered = [method for method in [*SHOWN, *sorted(others)] if method not in unfit]
    return [method for method in ordered if results.means(tasks, method, setting)]


def overview(results: Results, tasks: Sequence[str], setting: Setting = ADAMW) -> Table:
    """Return one row a method, the lowest mean first among those that have all tasks."""
    methods = methods_of(results, tasks, setting)
    found = {m: results.overall(tasks, m, setting) for m in methods}
    known = {method: each for method, each in found.items() if each is not None}
    ranks = results.mean_ranks(tasks, methods, setting)
    near = [task for task in tasks if results.is_near(task)]
    order = sorted(known, key=lambda m: (known[m].mean.count < len(tasks), known[m].mean.value))
    rows = []
    for method in order:
        each = known[method]
        over_centre = results.overall(near, method, setting, over=HELD_CENTRE)
        within = results.share_within(tasks, method, 1.1, setting)
        rows.append(
            (
                Cell(label(method), is_strong=method == OURS),
                _ratio(each.mean, is_strong=method == OURS),
                _worst(each),
                _ratio(over_centre.mean if over_centre and method != HELD_CENTRE else None),
                _number(ranks.get(method), ".1f"),
                _per_cent(within),
                _broken(each),
                Cell(str(each.mean.count), each.mean.count),
            )
        )
    columns = (
        "method",
        "mean",
        "worst task",
        "near tasks over 3e-3",
        "mean rank",
        "tasks within 1.1",
        "broken runs",
        "tasks",
    )
    return Table(columns, rows)


def by_task(results: Results, tasks: Sequence[str], setting: Setting = ADAMW) -> Table:
    """Return one row a task, one column a method; means and ranks below."""
    methods = methods_of(results, tasks, setting)
    rows = []
    for task in tasks:
        means = {method: results.mean(task, method, setting) for method in methods}
        lowest = min((mean.value for mean in means.values() if mean), default=None)
        rate = results.rate(task, setting)
        kind = {True: "near", False: "far", None: ""}[results.is_near(task)]
        rows.append(
            (
                Cell(task, detail=kind),
                _best(rate, setting),
                *(
                    _ratio(mean, is_strong=mean is not None and mean.value == lowest)
                    for mean in means.values()
                ),
            )
        )
    overall = {method: results.overall(tasks, method, setting) for method in methods}
    ranks = results.mean_ranks(tasks, methods, setting)
    blank = Cell("")
    footer = [
        (
            Cell("geometric mean"),
            blank,
            *(_ratio(each and each.mean, has_tone=False) for each in overall.values()),
        ),
        (Cell("worst"), blank, *(_worst(each, has_task=False) for each in overall.values())),
        (Cell("mean rank"), blank, *(_number(ranks.get(method), ".1f") for method in methods)),
        (Cell("broken runs"), blank, *(_broken(each) for each in overall.values())),
    ]
    return Table(("task", "best rate", *map(label, methods)), rows, footer)


def _best(rate: float | None, setting: Setting) -> Cell:
    """Return the oracle's rate; a better one may lie beyond an end of the grid."""
    cell, ends = _number(rate, "g"), (GRIDS[setting.base][0], GRIDS[setting.base][-1])
    return cell._replace(detail="end of the grid") if rate in ends else cell


def chosen_rates(results: Results, tasks: Sequence[str], setting: Setting = ADAMW) -> Table:
    """Return the rates of our runs, seed by seed, beside the oracle's and how its seeds differ."""
    methods = [m for m in ("self-tuned", "anytime") if results.means(tasks, m, setting)]
    rows = []
    for task in tasks:
        rates = [results.chosen_rates(task, method, setting) for method in methods]
        best, cosine = results.rate(task, setting), results.rate(task, setting, "cosine")
        rows.append(
            (
                Cell(task),
                _number(best, "g"),
                _number(results.spread(task, setting), ".2f"),
                _number(cosine, "g"),
                *(
                    Cell(
                        ", ".join(f"{rate:.2g}" for rate in each.values()) or NOT_RUN,
                        fmean(each.values()) if each else None,
                    )
                    for each in rates
                ),
            )
        )
    columns = ("task", "best held", "its seeds differ by", "best along a cosine")
    return Table((*columns, *(f"{label(m)}, by seed" for m in methods)), rows)


def costs(results: Results, tasks: Sequence[str], setting: Setting = ADAMW) -> Table:
    """Return what a run of each method costs, in runs at one fixed rate."""
    rows = [
        (
            Cell(label(method), is_strong=method == OURS),
            # That of version 0.1 is mostly the start of a process.
            _time(None if method in VERSION else results.time_ratio(tasks, method, setting)),
            _number(results.mean_of(tasks, method, "cost", setting), ".3f"),
            _per_cent(results.mean_of(tasks, method, "extra_steps", setting), digits=1),
            _per_cent(results.mean_of(tasks, method, "minibatches", setting), digits=1),
            Cell(str(_cuts(results, tasks, method, setting))),
        )
        for method in methods_of(results, tasks, setting)
    ]
    count = search_runs(setting.base)
    rows.append(
        (
            Cell("finding the best fixed rate"),
            *([Cell(f"{count}", count)] * 2),
            Cell(NOT_RUN),
            Cell(NOT_RUN),
            Cell(NOT_RUN),
        )
    )
    columns = (
        "method",
        "time of a run",
        "gradients of a run",
        "of them extra steps",
        "minibatches trained on",
        "rates cut by the guard",
    )
    return Table(columns, rows)


def failures(results: Results) -> list[tuple[str, str]]:
    """Return the runs of methods without a score: which, and why. Grids are not listed."""
    seeds: dict[tuple[str, str], list[int]] = {}
    names = sorted({key.method for key in results.records if "-at-" not in key.method})
    tasks = sorted({key.task for key in results.records})
    for setting, task in itertools.product(results.settings(), tasks):
        fixed = [ORACLE, COSINE, *([HELD_CENTRE] if setting.base == ADAMW.base else [])]
        length = "" if setting.length_factor == 1 else f"{setting.length_factor:g} times the length"
        for method in [*fixed, *names]:
            what = "best fixed rate" if method == ORACLE else label(method)
            where = ", ".join(filter(None, (task, what, setting.base, length)))
            for seed, run in results.runs(task, method, setting).items():
                if score_of(run) is None:
                    reason = run.get("failure") or "the loss ceased to be finite"
                    seeds.setdefault((where, reason), []).append(seed)
    return [
        (f"{where}, seed{'s' * (len(each) > 1)} {', '.join(map(str, each))}", reason)
        for (where, reason), each in sorted(seeds.items())
    ]


def plain(table: Table) -> str:
    """Return a table as Markdown."""
    lines = [table.columns, ("---",) * len(table.columns)]
    lines += [tuple(map(_markdown, row)) for row in (*table.rows, *table.footer)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown(cell: Cell) -> str:
    text = cell.text.replace("|", "\\|")
    text = f"**{text}**" if cell.is_strong and text else text
    return f"{text} ({cell.detail})" if cell.detail else text


def _ratio(mean: Mean | None, *, is_strong: bool = False, has_tone: bool = True) -> Cell:
    if mean is None:
        return Cell(NOT_RUN)
    detail = ""
    if mean.low is not None and mean.high is not None and mean.value < BROKEN * 0.999:
        detail = f"{_short(mean.low)} to {_short(mean.high)}"
    tone = next(name for bound, name in _TONES if mean.value <= bound) if has_tone else ""
    return Cell(_short(mean.value), mean.value, detail, tone, is_strong)


def _short(ratio: float) -> str:
    """Return three decimals of small ratios, fewer of large ones."""
    if ratio >= BROKEN * 0.999:
        return "broken"
    return f"{ratio:.3f}" if ratio < 10 else f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"


def _worst(each: Overall | None, *, has_task: bool = True) -> Cell:
    if each is None:
        return Cell(NOT_RUN)
    return Cell(_short(each.worst), each.worst, each.worst_task if has_task else "")


def _broken(each: Overall | None) -> Cell:
    if each is None:
        return Cell(NOT_RUN)
    tone = "poor" if each.broken else ""
    return Cell(f"{each.broken} of {each.runs}", each.broken, tone=tone)


def _number(value: float | None, digits: str) -> Cell:
    return Cell(NOT_RUN) if value is None else Cell(f"{value:{digits}}", value)


def _per_cent(share: float | None, digits: int = 0) -> Cell:
    return Cell(NOT_RUN) if share is None else Cell(f"{100 * share:.{digits}f} %", share)


def _time(mean: Mean | None) -> Cell:
    return Cell(NOT_RUN) if mean is None else Cell(f"{mean.value:.2f}", mean.value)


def _cuts(results: Results, tasks: Sequence[str], method: str, setting: Setting) -> int:
    runs = [run for task in tasks for run in results.runs(task, method, setting).values()]
    return sum(run.get("cuts") or 0 for run in runs)
