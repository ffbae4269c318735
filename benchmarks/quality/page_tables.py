"""The tables of the page and of the Markdown file."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from .oracle import tried_rates
from .shown import SHOWN, label
from .summaries import (
    ADAMW,
    BROKEN,
    COSINE,
    HELD_CENTRE,
    ORACLE,
    OURS,
    Compared,
    Mean,
    Overall,
    Results,
    Setting,
)

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
    names = {key.method for key in results.records if not key.variant and "-at-" not in key.method}
    # A rate that suits Adam says nothing about other bases.
    unfit = set() if setting.base == ADAMW.base else {HELD_CENTRE}
    ordered = [name for name in [*SHOWN, *sorted(names - SHOWN.keys())] if name not in unfit]
    return [method for method in ordered if results.means(tasks, method, setting)]


def overview(results: Results, tasks: Sequence[str], setting: Setting = ADAMW) -> Table:
    """Return one row a method, the lowest mean first among those that have all tasks."""
    methods = methods_of(results, tasks, setting)
    found = {method: results.overall(tasks, method, setting) for method in methods}
    known = {method: each for method, each in found.items() if each is not None}
    order = sorted(known, key=lambda m: (known[m].mean.count < len(tasks), known[m].mean.value))
    columns = ("method", *_OVERALL, "ours over it", "ours ahead on", "p (Wilcoxon)")
    rows = []
    for method in order:
        other = None if method == OURS else results.compared(tasks, OURS, method, setting)
        name = Cell(label(method), is_strong=method == OURS)
        rows.append((name, *_overall(known[method]), *_compared(other)))
    return Table(columns, rows)


def variants(results: Results, tasks: Sequence[str], setting: Setting = ADAMW) -> Table:
    """Return one row a variant of ours, beside ours on the runs that both have."""
    rows = []
    for variant in results.variants(setting):
        each = results.overall(tasks, variant, setting)
        if each is not None:
            beside = results.compared(tasks, variant, OURS, setting)
            rows.append((Cell(variant), *_overall(each), *_compared(beside)))
    return Table(("variant", *_OVERALL, "over ours", "ahead on", "p (Wilcoxon)"), rows)


def by_task(results: Results, tasks: Sequence[str], setting: Setting = ADAMW) -> Table:
    """Return one row a task, one column a method; means below."""
    methods = methods_of(results, tasks, setting)
    rows = []
    for task in tasks:
        means = {method: results.mean(task, method, setting) for method in methods}
        lowest = min((mean.value for mean in means.values() if mean), default=None)
        ratios = (
            _ratio(mean, is_strong=bool(mean and mean.value == lowest)) for mean in means.values()
        )
        rows.append((Cell(task), _best(results, task, setting), *ratios))
    overall = [results.overall(tasks, method, setting) for method in methods]
    footer = [
        (Cell("geometric mean"), Cell(""), *(_ratio(each and each.mean) for each in overall)),
        (Cell("worst"), Cell(""), *(_worst(each) for each in overall)),
    ]
    return Table(("task", "best rate", *map(label, methods)), rows, footer)


def _best(results: Results, task: str, setting: Setting) -> Cell:
    """Return the oracle's rate; a better one may lie beyond an end of what was tried."""
    rate, tried = results.rate(task, setting), tried_rates(results.records, task, *setting)
    cell = _number(rate, "g")
    return cell._replace(detail="end of the grid") if rate in (tried[0], tried[-1]) else cell


def chosen_rates(results: Results, tasks: Sequence[str], setting: Setting = ADAMW) -> Table:
    """Return the rates of our runs, seed by seed, beside the oracle's and how its seeds differ."""
    methods = [m for m in (OURS, "anytime") if results.means(tasks, m, setting)]
    rows = []
    for task in tasks:
        chosen = (results.chosen_rates(task, method, setting) for method in methods)
        rows.append(
            (
                Cell(task),
                _best(results, task, setting),
                _number(results.spread(task, setting), ".2f"),
                *(
                    Cell(
                        ", ".join(f"{rate:.2g}" for rate in each.values()) or NOT_RUN,
                        fmean(each.values()) if each else None,
                    )
                    for each in chosen
                ),
                _per_cent(results.extra_steps(task, OURS, setting), digits=1),
            )
        )
    names = (f"{label(method)}, by seed" for method in methods)
    return Table(("task", "best held", "its seeds differ by", *names, "extra steps"), rows)


def failures(results: Results) -> list[tuple[str, str]]:
    """Return the runs of methods without a score: which, and why. Grids are not listed."""
    seeds: dict[tuple[str, str], list[int]] = {}
    names = sorted({k.variant or k.method for k in results.records if "-at-" not in k.method})
    tasks = sorted({key.task for key in results.records})
    for setting, task in itertools.product(results.settings(), tasks):
        fixed = [ORACLE, COSINE, *([HELD_CENTRE] if setting.base == ADAMW.base else [])]
        length = "" if setting.length_factor == 1 else f"{setting.length_factor:g} times the length"
        for method in [*fixed, *names]:
            what = "best fixed rate" if method == ORACLE else label(method)
            where = ", ".join(filter(None, (task, what, setting.base, length)))
            for seed, run in results.runs(task, method, setting).items():
                if results.score(run) is None:
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


_OVERALL = ("mean", "worst task", "within 1.1", "broken runs", "tasks")


def _overall(each: Overall) -> tuple[Cell, ...]:
    broken = Cell(f"{each.broken} of {each.runs}", each.broken, tone="poor" if each.broken else "")
    return (
        _ratio(each.mean),
        _worst(each)._replace(detail=each.worst_task),
        _per_cent(each.within),
        broken,
        Cell(str(each.mean.count), each.mean.count),
    )


def _compared(each: Compared | None) -> tuple[Cell, ...]:
    if each is None:
        return (Cell(NOT_RUN),) * 3
    ahead = Cell(f"{each.ahead} of {each.tasks}", each.ahead / each.tasks)
    return _ratio(each.ratio)._replace(tone=""), ahead, _number(each.p, ".2g")


def _ratio(mean: Mean | None, *, is_strong: bool = False) -> Cell:
    if mean is None:
        return Cell(NOT_RUN)
    detail = ""
    if mean.low is not None and mean.high is not None and mean.value < BROKEN * 0.999:
        detail = f"{_short(mean.low)} to {_short(mean.high)}"
    tone = next(name for bound, name in _TONES if mean.value <= bound)
    return Cell(_short(mean.value), mean.value, detail, tone, is_strong)


def _short(ratio: float) -> str:
    """Return three decimals of small ratios, fewer of large ones."""
    if ratio >= BROKEN * 0.999:
        return "broken"
    return f"{ratio:.3f}" if ratio < 10 else f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"


def _worst(each: Overall | None) -> Cell:
    return Cell(NOT_RUN) if each is None else Cell(_short(each.worst), each.worst)


def _number(value: float | None, digits: str) -> Cell:
    return Cell(NOT_RUN) if value is None else Cell(f"{value:{digits}}", value)


def _per_cent(share: float | None, digits: int = 0) -> Cell:
    return Cell(NOT_RUN) if share is None else Cell(f"{100 * share:.{digits}f} %", share)
