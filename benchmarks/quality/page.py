"""What is shown: one page that loads nothing from outside, and the tables of the Markdown file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from annealtune.studies.report.figures.panels import render as render_panel
from annealtune.studies.report.shell import environment

from . import figures, hero
from .page_tables import (
    Table,
    by_task,
    chosen_rates,
    failures,
    methods_of,
    overview,
    plain,
    variants,
)
from .shown import SHOWN
from .summaries import ADAMW, OURS, Records, Results, Setting, is_sealed
from .tasks.catalogue import TASKS

COMMAND = "python -m benchmarks.quality --data-dir DIR --text FILE"
_BASES = {
    "adamw": "AdamW",
    "sgd": "SGD with momentum 0.9",
    "adafactor": "Adafactor",
    "adagrad": "Adagrad",
    "lion": "Lion",
    "muon": "Muon",
    "rmsprop": "RMSprop",
}
# What a half is called, and what that means.
_HALVES = {
    False: ("Open tasks", "In-sample: the constants of the races were chosen on these tasks."),
    True: ("Sealed tasks", "Nothing was chosen by what the tuner does on these tasks."),
}


class Shown(NamedTuple):
    """A table with its heading; one that is folded is opened by a click."""

    name: str
    title: str
    text: str
    table: Table
    is_folded: bool = True


def render(records: Records) -> str:
    """Return the page as HTML."""
    results = Results(records)
    frame = environment(jinja2.FileSystemLoader(Path(__file__).parent))
    return frame.get_template("page.html").render(
        hero=_hero(results),
        rates=_inline(figures.rates(results)) if results.tasks() else "",
        halves=[_half(results, sealed=sealed) for sealed in _halves(results)],
        tables=list(_tables(records)),
        failures=failures(results),
        methods=[SHOWN[m] for m in SHOWN if m in methods_of(results, results.tasks())],
        tasks=_task_list(results),
        runs=len(records),
        left_out=_without_oracle(results),
        seeds=", ".join(map(str, sorted({key.seed for key in records}))),
        origins=_origins(records),
        command=COMMAND,
    )


def readme_table(records: Records) -> str:
    """Return one row a method over AdamW, sealed tasks if there are any, as Markdown."""
    results = Results(records)
    table = overview(results, results.tasks(sealed=True) or results.tasks())
    wanted = ("method", "mean", "worst task", "within 1.1", "broken runs")
    places = [table.columns.index(name) for name in wanted]
    rows = [tuple(row[place]._replace(detail="") for place in places) for row in table.rows]
    return plain(Table(wanted, rows))


def markdown(records: Records) -> str:
    """Return all tables as Markdown, with headings."""
    pieces = (f"## {t.title}\n\n{t.text}\n\n{plain(t.table)}\n" for t in _tables(records))
    return "\n".join(pieces)


def _halves(results: Results) -> list[bool]:
    """Return the halves with a finished comparison, the sealed one first."""
    return [sealed for sealed in (True, False) if results.tasks(sealed=sealed)]


def _tables(records: Records) -> Iterator[Shown]:
    results, final = Results(records), Results(records, final=True)
    for sealed in _halves(results):
        tasks, (title, text) = results.tasks(sealed=sealed), _HALVES[sealed]
        name = title.partition(" ")[0].lower()
        yield Shown(name, f"{title}, AdamW", text, overview(results, tasks), is_folded=False)
        yield Shown(
            f"{name}-final",
            f"{title}, by final scores",
            f"{text} The weights at the end of each run instead of those at its best look; the "
            "best rate is chosen by them too.",
            overview(final, final.tasks(sealed=sealed)),
        )
        yield Shown(
            f"{name}-tasks",
            f"{title}, one by one",
            "Geometric mean over the seeds, with 95 % intervals.",
            by_task(results, tasks),
        )
        yield Shown(
            f"{name}-rates",
            f"{title}, rates chosen",
            "The rate of each run beside the best one that was tried, and the factor (one "
            "deviation) by which the test scores of that one differ from seed to seed: a ratio "
            "closer to 1 says little. Extra steps: of all arms, in parts of the run.",
            chosen_rates(results, tasks),
        )
    for setting in results.settings():
        tasks, name = results.tasks(setting), f"{setting.base}-{setting.length_factor:g}"
        if tasks and setting != ADAMW:
            sealed_ones = ", ".join(filter(is_sealed, tasks)) or "none"
            text = f"Sealed tasks among them: {sealed_ones}."
            yield Shown(name, _title(setting), text, overview(results, tasks, setting))
            table = by_task(results, tasks, setting)
            yield Shown(f"{name}-tasks", f"{_title(setting)}, one by one", text, table)
        table = variants(results, tasks, setting)
        if table.rows:
            text = "Ours with another constant or rule, beside ours on the same tasks and seeds."
            yield Shown(f"{name}-variants", f"Variants over {_title(setting)}", text, table)


def _title(setting: Setting) -> str:
    base = _BASES.get(setting.base, setting.base)
    factor = setting.length_factor
    return base if factor == 1 else f"{base}, {factor:g} times the length"


def _hero(results: Results) -> list[dict[str, Any]]:
    shown = []
    for panel, task in hero.panels(results):
        mean = results.mean(task, OURS)
        ratio = "" if mean is None else f"{mean.value:.2f} × best"
        shown.append({"task": task, "ratio": ratio, "inline": _inline(panel)})
    return shown


def _half(results: Results, *, sealed: bool) -> dict[str, Any]:
    """Return the large numbers of a half and its figure."""
    tasks, (title, text) = results.tasks(sealed=sealed), _HALVES[sealed]
    own = results.overall(tasks, OURS)
    tiles: list[tuple[str, str]] = []
    if own is not None:
        tiles = [
            (f"{own.mean.value:.3f}", "of the best fixed rate’s score, geometric mean"),
            (f"{own.worst:.2f}", f"on the worst task, {own.worst_task}"),
            (f"{100 * own.within:.0f} %", "of the tasks within a factor of 1.1"),
            (f"{own.broken}", f"broken of {own.runs} runs"),
        ]
    return {
        "name": title.partition(" ")[0].lower(),
        "title": f"{title}, AdamW",
        "text": text,
        "tiles": tiles,
        "figure": _inline(figures.by_task(results, tasks, sealed=sealed)),
    }


def _inline(panel: Any) -> str:
    return render_panel(panel, files=False).inline


def _without_oracle(results: Results) -> int:
    """Return how many runs are in no table, because the best fixed rate is not known."""
    known = {(task, each) for each in results.settings() for task in results.tasks(each)}
    keys = results.records
    return sum((k.task, Setting(k.base, k.length_factor)) not in known for k in keys)


def _origins(records: Records) -> list[str]:
    """Return what the runs were made with, each combination once."""
    found: dict[str, int] = {}
    for run in records.values():
        if "commit" in run:
            text = f"commit {run['commit']}, torch {run['torch']}, {run['cpu']}"
            found[text] = found.get(text, 0) + 1
    return [f"{text}: {count:,} runs" for text, count in sorted(found.items())]


def _task_list(results: Results) -> list[dict[str, Any]]:
    """Return what is known of every task: its half and what it is."""
    found = []
    for task in results.tasks():
        kind = TASKS.get(task)
        text = (kind.__doc__ or "").strip().partition("\n")[0] if kind else ""
        half = "sealed" if is_sealed(task) else "open"
        found.append({"name": task, "half": half, "text": text})
    return found
