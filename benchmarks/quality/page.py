"""What is shown: one page that loads nothing from outside, and the table of the README."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2

from .methods import SHOWN
from .records import Record
from .summaries import (
    Interval,
    Summary,
    mean_ranks,
    paired_difference,
    ranks,
    reference_of,
    summarize,
    t_interval,
    variant_order,
)
from .tasks import TASKS

COMMAND = "python -m benchmarks.quality"
UNITS = {"accuracy": "accuracy, points", "r2": "R², points", "loss": "loss"}
VARIANTS = {
    "base-lr": "Robustness: another learning rate given",
    "loss": "Robustness: another scale of the loss",
    "length": "Long runs",
}


class Table(NamedTuple):
    """Text in cells; the first column names the row."""

    title: str
    command: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""


class Failure(NamedTuple):
    """A run without a result."""

    where: str
    reason: str


def render(records: Iterable[Record], scale: float = 1.0) -> str:
    """Return the page as HTML."""
    records = [record for record in records if record["scale"] == scale]
    summaries = summarize(records, scale)
    plain = [s for s in summaries if not s.variant]
    tasks = list(dict.fromkeys(s.task for s in plain))
    changed = sorted({s.variant for s in summaries if s.variant}, key=variant_order)
    kinds = dict.fromkeys(v.partition("=")[0] for v in changed)
    seeds = {r["seed"] for r in records if not r["is_search"]}
    common = _common_options(seeds, scale)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html").render(
        scale=scale,
        runs=len([r for r in records if not r["is_search"]]),
        seeds=len(seeds),
        ranking=_ranking(summaries, common) if tasks else None,
        tasks=[_task(task, plain, common) for task in tasks],
        variants=[_variant(kind, changed, summaries, common) for kind in kinds],
        failures=_failures(summaries),
        methods=[method for method in SHOWN.values() if method.name in {s.method for s in plain}],
        versions=_versions(records),
    )


def markdown(records: Iterable[Record], scale: float = 1.0) -> str:
    """Return the table of methods and tasks, mean ± deviation, best mean rank first."""
    summaries = summarize(records, scale)
    tasks, rows = _overview(summaries)
    heads = [f"{task} ({TASKS[task].metric})" for task in tasks]
    lines = [("method", *heads, "mean rank"), ("---",) * (len(tasks) + 2), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _overview(summaries: Sequence[Summary]) -> tuple[list[str], list[tuple[str, ...]]]:
    plain = {(s.method, s.task): s for s in summaries if not s.variant}
    tasks = list(dict.fromkeys(s.task for s in plain.values()))
    means = mean_ranks(summaries)
    others = [m for m in SHOWN if m not in means and any(name == m for name, _ in plain)]
    rows = []
    for method in [*means, *others]:
        cells = [_short(plain.get((method, task))) for task in tasks]
        rank = f"{means[method]:.1f}" if method in means else "n/a"
        rows.append((method, *cells, rank))
    return tasks, rows


def _short(summary: Summary | None) -> str:
    if summary is None:
        return "not run"
    digits = _digits(summary.task)
    interval, deviation = summary.interval, summary.deviation
    text = "" if interval is None else f"{interval.mean:.{digits}f}"
    if deviation is not None:
        text += f" ± {deviation:.{digits}f}"
    if summary.failures:
        total = len(summary.failures) + len(summary.scores)
        text += f" ({len(summary.failures)} of {total} failed)"
    return text.strip()


def _ranking(summaries: Sequence[Summary], common: str) -> Table:
    tasks, rows = _overview(summaries)
    by_task = ranks(summaries)
    shown = []
    for method, *cells, rank in rows:
        places = [by_task[method][task] if method in by_task else None for task in tasks]
        texts = [
            cell if place is None else f"{cell} · {place:g}"
            for cell, place in zip(cells, places, strict=True)
        ]
        shown.append((method, rank, *texts))
    columns = ("method", "mean rank", *(f"{t}: {UNITS[TASKS[t].metric]} · rank" for t in tasks))
    note = (
        "Rank by the mean of the test metric over the seeds. A failed run counts as the worst "
        "result: a method with failures ranks behind all without. Methods that lack a task have "
        "no rank."
    )
    return Table("All tasks", _command(common), columns, shown, note)


def _task(task: str, plain: Sequence[Summary], common: str) -> Table:
    digits = _digits(task)
    reference = reference_of(plain, task)
    rows = []
    for s in plain:
        if s.task != task:
            continue
        difference = paired_difference(s.scores, reference.scores) if reference else None
        if reference is not None and s.method == reference.method:
            difference = None
        losses = t_interval(list(s.losses.values()))
        rows.append(
            (
                s.method,
                _mean(s.interval, digits),
                "n/a" if s.deviation is None else f"{s.deviation:.{digits}f}",
                _range(s.interval, digits),
                str(len(s.scores)),
                str(len(s.failures)),
                _mean(losses, 4),
                "" if difference is None else f"{difference.mean:+.{digits}f}",
                "" if difference is None else _range(difference, digits, sign="+"),
                _cost(s),
                f"{s.search_cost:,.0f}" if s.search_cost else "",
                _rates(s),
                "" if s.probe_share is None else f"{100 * s.probe_share:.0f} %",
                "n/a" if s.seconds is None else f"{s.seconds:.0f}",
            )
        )
    against = f" minus {reference.method}" if reference else " from the reference"
    columns = (
        "method",
        f"test {UNITS[TASKS[task].metric]}",
        "deviation",
        "95 % interval",
        "n",
        "failed",
        "test loss",
        f"difference{against}",
        "its paired 95 % interval",
        "cost, % of the budget",
        "search, forwards",
        "rate given",
        "steps probed",
        "CPU s",
    )
    better = "Higher" if TASKS[task].higher_is_better else "Lower"
    budgets = sorted({s.budget for s in plain if s.task == task and s.budget is not None})
    budget = " or ".join(f"{b:,.0f}" for b in budgets)
    chosen = (
        f" The better reference on the validation part: {reference.method}." if reference else ""
    )
    note = f"{better} is better. Budget of a run: {budget} forwards.{chosen}"
    if any(s.is_edge for s in plain if s.task == task):
        note += " *: the chosen rate is at the edge of those offered."
    return Table(
        f"{task}: {TASKS[task].title}", _command(f"--tasks {task}", common), columns, rows, note
    )


def _variant(kind: str, changed: Sequence[str], summaries: Sequence[Summary], common: str) -> Table:
    """Return what became of each method on each task when one thing was changed."""
    variants = [v for v in changed if v.partition("=")[0] == kind]
    factors = [v.partition("=")[2] for v in variants]
    found = {(s.task, s.method, s.variant): s for s in summaries}
    names = dict.fromkeys((s.task, s.method) for s in summaries if s.variant in variants)
    rows = [
        (
            f"{task}, {method}",
            *(_short(found.get((task, method, variant))) for variant in ["", *variants]),
        )
        for task, method in names
    ]
    columns = ("task and method", "unchanged", *(f"× {factor}" for factor in factors))
    command = _command(f"--{kind}-factor {','.join(factors)}", common)
    note = "Test metric, mean ± deviation over the seeds."
    if kind == "length":
        note += " References keep the rate chosen at the plain length unless --retune was given."
    return Table(VARIANTS[kind], command, columns, rows, note)


def _failures(summaries: Iterable[Summary]) -> list[Failure]:
    return [
        Failure(", ".join(filter(None, (s.task, s.method, s.variant, f"seed {seed}"))), reason)
        for s in summaries
        for seed, reason in s.failures.items()
    ]


def _versions(records: Iterable[Record]) -> list[tuple[str, str]]:
    """Return every version that occurs, so that a mixture is seen."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for name, version in record["versions"].items():
            found.setdefault(name, {})[version] = None
    return [(name, ", ".join(versions)) for name, versions in found.items()]


def _command(*options: str) -> str:
    return " ".join(filter(None, (COMMAND, *options)))


def _common_options(seeds: set[int], scale: float) -> str:
    """Return the options of all commands, where they are not the default."""
    options = [] if seeds == set(range(5)) or not seeds else [f"--seeds {_ranges(seeds)}"]
    return " ".join([*options, *([] if scale == 1 else [f"--scale {scale:g}"])])


def _ranges(seeds: set[int]) -> str:
    first, last = min(seeds), max(seeds)
    if first < last and len(seeds) == last - first + 1:
        return f"{first}-{last}"
    return ",".join(map(str, sorted(seeds)))


def _digits(task: str) -> int:
    return 3 if TASKS[task].metric == "loss" else 2


def _mean(interval: Interval | None, digits: int) -> str:
    return "n/a" if interval is None else f"{interval.mean:.{digits}f}"


def _range(interval: Interval | None, digits: int, sign: str = "") -> str:
    if interval is None or interval.low is None:
        return "n/a"
    return f"{interval.low:{sign}.{digits}f} to {interval.high:{sign}.{digits}f}"


def _cost(summary: Summary) -> str:
    if not summary.cost or not summary.budget:
        return "n/a"
    cut = f" ({summary.cut} cut)" if summary.cut and _has_a_plan(summary.method) else ""
    return f"{100 * summary.cost / summary.budget:.1f}{cut}"


def _has_a_plan(method: str) -> bool:
    """Tell whether being stopped by the budget means that a schedule did not end."""
    return method not in ("line-search", "self-tuned-anytime", "adamw-sa-anytime")


def _rates(summary: Summary) -> str:
    text = ", ".join(f"{rate:.3g}" for rate in summary.rates)
    return text + " *" * summary.is_edge
