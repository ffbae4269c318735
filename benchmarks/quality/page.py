"""What is shown: one page that loads nothing from outside, and the tables of the Markdown files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from annealtune.studies.report.figures.panels import Drawing
from annealtune.studies.report.figures.panels import render as render_panel
from annealtune.studies.report.shell import environment

from . import figures, hero
from .page_tables import Table, by_task, chosen_rates, costs, failures, methods_of, overview, plain
from .reasons import REASONS
from .shown import SHOWN, label, of_families
from .summaries import (
    ADAMW,
    HELD_CENTRE,
    LONG,
    SGD,
    Records,
    Results,
    Setting,
    is_sealed,
    score_of,
    search_runs,
)
from .targets import OURS, targets
from .tasks.catalogue import TASKS

COMMAND = "python -m benchmarks.quality --data-dir DIR --text FILE"
MACHINE = "x86-64, two cores, one thread a run, Python 3.11, torch 2.13.0"
_BASES = {
    "adamw": "AdamW",
    "sgd": "SGD with momentum 0.9",
    "adafactor": "Adafactor",
    "lion": "Lion",
    "muon": "Muon",
}


class Fold(NamedTuple):
    """A table that is opened by a click."""

    name: str
    title: str
    text: str
    table: Table


class Tile(NamedTuple):
    """One large number."""

    number: str
    text: str


def render(records: Records) -> str:
    """Return the page as HTML."""
    results = Results(records)
    sealed, opened = results.tasks(sealed=True), results.tasks(sealed=False)
    tasks = sealed or opened
    frame = environment(jinja2.FileSystemLoader(Path(__file__).parent))
    return frame.get_template("page.html").render(
        claim=claim(results),
        half="sealed" if sealed else "open",
        tiles=_tiles(results, tasks),
        hero=_hero(results) if tasks else [],
        drawings=_drawings(results, tasks) if tasks else {},
        targets=targets(records),
        reasons=REASONS,
        overview=overview(results, tasks),
        folds=_folds(results, sealed, opened),
        failures=failures(results),
        grid_failures=_broken_of_grids(results),
        methods=[SHOWN[m] for m in SHOWN if m in methods_of(results, results.tasks())],
        tasks=_task_list(results),
        grid=search_runs("adamw"),
        runs=len(results.records),
        left_out=_without_oracle(results),
        seeds=", ".join(map(str, results.seeds())),
        command=COMMAND,
        machine=MACHINE,
    )


def readme_table(records: Records) -> str:
    """Return one row a method on the sealed half over AdamW, as Markdown."""
    results = Results(records)
    table = overview(results, results.tasks(sealed=True) or results.tasks())
    wanted = ("method", "mean", "worst task", "near tasks over 3e-3", "broken runs")
    places = [table.columns.index(name) for name in wanted]
    rows = [tuple(row[place]._replace(detail="") for place in places) for row in table.rows]
    return plain(Table(("method", "geometric mean", "worst", "near over 3e-3", "broken"), rows))


def markdown(records: Records) -> str:
    """Return all tables as Markdown, with headings."""
    results = Results(records)
    sealed, opened = results.tasks(sealed=True), results.tasks(sealed=False)
    lines = ["| where | what must hold | bound | measured | holds |", "|" + " --- |" * 5]
    for line in targets(records):
        verdict = {True: "yes", False: "**does not hold**", None: "not run yet"}[line.holds]
        reason = f": {REASONS[line.name]}" if line.holds is False and line.name in REASONS else ""
        cells = (line.where, line.what, line.bound, line.measured or "–", verdict + reason)
        lines.append(f"| {' | '.join(cells)} |")
    pieces = ["## What was to be shown\n", "\n".join(lines)]
    if sealed or opened:
        half = "sealed" if sealed else "open"
        pieces += [f"\n## All methods, {half} half\n", plain(overview(results, sealed or opened))]
    for fold in _folds(results, sealed, opened):
        pieces += [f"\n## {fold.title}\n", f"{fold.text}\n", plain(fold.table)]
    return "\n".join(pieces) + "\n"


def claim(results: Results) -> str:
    """Return what came out, in one or two sentences."""
    tasks = results.tasks(sealed=True)
    where = f"On {len(tasks)} sealed tasks"
    if not tasks:
        tasks = results.tasks()
        where = f"On {len(tasks)} tasks that its constants were chosen on"
    own = results.overall(tasks, OURS)
    if own is None:
        return "There is no finished comparison yet."
    count = search_runs(ADAMW.base)
    text = (
        f"{where}, one self-tuned run of AdamW ends at {own.mean.value:.2f} times the test score "
        f"of the best of {count} fixed rates, at worst at {own.worst:.2f} times; lower is better."
    )
    rivals = []
    centre = results.overall(tasks, HELD_CENTRE)
    if centre is not None:
        rivals.append(f"a fixed 3e-3 ends at {centre.mean.value:.2f}")
    peers = {name: results.overall(tasks, name) for name in of_families("peer")}
    means = {name: each.mean.value for name, each in peers.items() if each is not None}
    if means:
        best = min(means, key=lambda name: means[name])
        rivals.append(f"{label(best)}, the best peer of {len(means)}, ends at {means[best]:.2f}")
    if not rivals:
        return text
    told = " and ".join(rivals)
    return f"{text} {told[0].upper()}{told[1:]}."


def _tiles(results: Results, tasks: Sequence[str]) -> list[Tile]:
    own = results.overall(tasks, OURS)
    if own is None:
        return []
    within = results.share_within(tasks, OURS, 1.1) or 0.0
    return [
        Tile(f"{own.mean.value:.2f}", "of the best fixed rate’s score, geometric mean"),
        Tile(f"{own.worst:.2f}", f"on the worst task, {own.worst_task}"),
        Tile(f"{100 * within:.0f} %", "of the tasks within a factor of 1.1"),
        Tile(f"{own.broken}", f"broken of {own.runs} runs"),
    ]


def _hero(results: Results) -> list[dict[str, Any]]:
    shown = []
    for panel, task in hero.panels(results):
        mean = results.mean(task, OURS)
        ratio = "" if mean is None else f"{mean.value:.2f} × best"
        shown.append(
            {"task": task, "ratio": ratio, "inline": render_panel(panel, files=False).inline}
        )
    return shown


def _drawings(results: Results, tasks: Sequence[str]) -> dict[str, Drawing]:
    # The paper's methods have runs on near tasks alone: no curve over all tasks.
    methods = [m for m in methods_of(results, tasks) if len(results.means(tasks, m)) == len(tasks)]
    panels = (
        figures.profile(results, tasks, methods),
        figures.rates(results),
        figures.by_task(results, tasks),
    )
    return {panel.name: render_panel(panel, files=False) for panel in panels}


def _folds(results: Results, sealed: Sequence[str], opened: Sequence[str]) -> list[Fold]:
    ratio = "Test score over that of the best fixed rate on the same seed, with 95 % intervals."
    folds = []
    if sealed:
        text = (
            f"{ratio} Nine are fresh; the others had been run before, eleven of them with other "
            "constants too."
        )
        folds.append(Fold("sealed", "Sealed half, AdamW", text, by_task(results, sealed)))
    if opened:
        text = f"{ratio} In-sample for ours: the constants of the races were chosen on these tasks."
        folds.append(Fold("open", "Open half, AdamW: in-sample", text, by_task(results, opened)))
    for setting in [SGD, LONG, *_other_settings(results)]:
        tasks = results.tasks(setting)
        if tasks:
            marked = sum(map(is_sealed, tasks))
            text = f"{ratio} {marked} sealed tasks, {len(tasks) - marked} open ones."
            name = f"{setting.base}-{setting.length_factor:g}"
            folds.append(Fold(name, _title(setting), text, by_task(results, tasks, setting)))
    both = results.tasks()
    if both:
        text = (
            "AdamW; the rate in the end of each run, beside the best of the grid, and the factor "
            "(one deviation) by which the test scores of that rate differ from seed to seed: a "
            "ratio closer to 1 than that says little."
        )
        folds.append(Fold("chosen", "Rates chosen", text, chosen_rates(results, both)))
        text = (
            "AdamW, all tasks, in runs at one fixed rate. Every method may spend the same "
            "gradients; what a race tries is taken off the minibatches trained on. Times were "
            "taken under changing load and are rough."
        )
        folds.append(Fold("costs", "Costs", text, costs(results, both)))
    return folds


def _other_settings(results: Results) -> list[Setting]:
    return [each for each in results.settings() if each not in (ADAMW, SGD, LONG)]


def _title(setting: Setting) -> str:
    base = _BASES.get(setting.base, setting.base)
    if setting.length_factor == 1:
        return base
    length = "ten" if setting.length_factor == 10 else f"{setting.length_factor:g}"
    return f"{base}, {length} times the length"


def _broken_of_grids(results: Results) -> int:
    runs = [run for key, run in results.records.items() if "-at-" in key.method]
    return sum(score_of(run) is None for run in runs)


def _without_oracle(results: Results) -> int:
    """Return how many runs are in no table, because the best fixed rate is not known."""
    known = {(task, each) for each in results.settings() for task in results.tasks(each)}
    keys = results.records
    return sum((k.task, Setting(k.base, k.length_factor)) not in known for k in keys)


def _task_list(results: Results) -> list[dict[str, Any]]:
    """Return what is known of every task: its half, whether it is near, what it is."""
    found = []
    for task in results.tasks():
        kind = TASKS.get(task)
        text = (kind.__doc__ or "").strip().partition("\n")[0] if kind else ""
        found.append(
            {
                "name": task,
                "half": "sealed" if is_sealed(task) else "open",
                "near": "near" if results.is_near(task) else "far",
                "text": text,
            }
        )
    return found
