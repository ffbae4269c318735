"""What is shown: one page that loads nothing from outside, and the tables of the Markdown file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from annealtune.studies.report.figures.panels import render as render_panel
from annealtune.studies.report.shell import fill_template
from annealtune.studies.report.tables import Cell, Table, text_cell

from . import figures
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
    Records,
    Results,
    Setting,
    geometric_mean,
    is_sealed,
)
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
# A table of the sealed tasks alone needs so many.
_FEW = 5
# Up to which ratio a cell has which shade.
_TONES = ((1.05, "best"), (1.2, "good"), (2.0, "fair"), (float("inf"), "poor"))
NOT_RUN = "–"


class Section(NamedTuple):
    """A table with its heading; one that is folded is opened by a click."""

    name: str
    title: str
    text: str
    table: Table
    is_folded: bool = True


def render(records: Records, again: Sequence[Records] = ()) -> str:
    """Return the page as HTML.

    Args:
        records: all runs.
        again: some of them, made again elsewhere.
    """
    results = Results(records)
    return fill_template(
        "quality.html",
        Path(__file__).parent,
        kind="annealtune benchmark",
        title="One run beside the best fixed rate",
        subtitle="Numbers are test scores over those of the best fixed rate on the same seed, at "
        "equal cost; lower is better, and 1 is level.",
        hero=_hero(results),
        rates=_inline(figures.rates(results)) if results.tasks() else "",
        halves=[_half(results, sealed=sealed) for sealed in _halves(results)],
        tables=list(_tables(records, again)),
        failures=failures(results),
        methods=[SHOWN[m] for m in SHOWN if m in methods_of(results, results.tasks())],
        tasks=_task_list(results),
        runs=len(records),
        left_out=_without_oracle(results),
        seeds=", ".join(map(str, sorted({key.seed for key in records}))),
        origins=_origins(records),
        command=COMMAND,
    )


def markdown(records: Records, again: Sequence[Records] = ()) -> str:
    """Return all tables as Markdown, with headings."""
    tables = _tables(records, again)
    return "\n".join(f"## {t.title}\n\n{t.text}\n\n{plain(t.table)}\n" for t in tables)


def _halves(results: Results) -> list[bool]:
    """Return the halves with a finished comparison, the sealed one first."""
    return [sealed for sealed in (True, False) if results.tasks(sealed=sealed)]


def _tables(records: Records, again: Sequence[Records]) -> Iterator[Section]:
    results, final = Results(records), Results(records, final=True)
    for sealed in _halves(results):
        tasks, (title, text) = results.tasks(sealed=sealed), _HALVES[sealed]
        name = title.partition(" ")[0].lower()
        yield Section(name, f"{title}, AdamW", text, overview(results, tasks), is_folded=False)
        yield Section(
            f"{name}-final",
            f"{title}, by final scores",
            f"{text} The weights at the end of each run instead of those at its best look; the "
            "best rate is chosen by them too.",
            overview(final, final.tasks(sealed=sealed)),
        )
        yield Section(
            f"{name}-tasks",
            f"{title}, one by one",
            "Geometric mean over the seeds, with 95 % intervals.",
            by_task(results, tasks),
        )
        yield Section(
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
            sealed_ones = list(filter(is_sealed, tasks))
            text = f"Sealed tasks among them: {', '.join(sealed_ones) or 'none'}."
            yield Section(name, _title(setting), text, overview(results, tasks, setting))
            if len(tasks) > len(sealed_ones) >= _FEW:
                table = overview(results, sealed_ones, setting)
                told = f"{_title(setting)}, the sealed tasks alone"
                yield Section(f"{name}-sealed", told, _HALVES[True][1], table)
            table = by_task(results, tasks, setting)
            yield Section(f"{name}-tasks", f"{_title(setting)}, one by one", text, table)
        table = variants(results, tasks, setting)
        if table.rows:
            text = (
                "Ours with another constant or rule (`--vary`). Over ours: on the same tasks and "
                "seeds, with a 95 % interval over the tasks."
            )
            yield Section(f"{name}-variants", f"Variants over {_title(setting)}", text, table)
    if again:
        text = (
            "Runs of SelfTuner that were made again with another version, or on another CPU, whose "
            "instructions round differently. Over the kept one: its test score, divided by that of "
            "the run in the tables above."
        )
        yield Section("again", "Made again", text, made_again(records, again))


def _title(setting: Setting) -> str:
    base = _BASES.get(setting.base, setting.base)
    factor = setting.length_factor
    return base if factor == 1 else f"{base}, {factor:g} times the length"


def _hero(results: Results) -> list[dict[str, Any]]:
    shown = []
    for panel, task in figures.hero_panels(results):
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


# --- Tables ---


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
        name = text_cell(label(method))._replace(is_best=method == OURS)
        rows.append((name, *_overall(known[method]), *_compared(other)))
    return Table(columns, tuple(rows))


def variants(results: Results, tasks: Sequence[str], setting: Setting = ADAMW) -> Table:
    """Return one row for each variant of SelfTuner, the best first, and SelfTuner itself.

    The ratio is paired: over the tasks and seeds that both have, with an interval over the tasks.
    """
    found = []
    for variant in results.variants(setting):
        each = results.overall(tasks, variant, setting)
        beside = results.compared(tasks, variant, OURS, setting)
        if each is not None and beside is not None:
            row = (text_cell(variant), *_overall(each), *_compared(beside))
            found.append((beside.ratio.value, variant, row))
    own = results.overall(tasks, OURS, setting)
    as_it_is = (text_cell("as it is"), *_overall(own), *_compared(None)) if own else ()
    columns = ("variant", *_OVERALL, "over ours", "ahead on", "p (Wilcoxon)")
    rows = tuple(row for _, _, row in sorted(found, key=lambda f: f[:2]))
    return Table(columns, rows, summary=(as_it_is,) if as_it_is else ())


def by_task(results: Results, tasks: Sequence[str], setting: Setting = ADAMW) -> Table:
    """Return one row a task, one column a method; and their means."""
    methods = methods_of(results, tasks, setting)
    rows = []
    for task in tasks:
        means = {method: results.mean(task, method, setting) for method in methods}
        lowest = min((mean.value for mean in means.values() if mean), default=None)
        ratios = (
            _ratio(mean, is_best=bool(mean and mean.value == lowest)) for mean in means.values()
        )
        rows.append((text_cell(task), _best(results, task, setting), *ratios))
    overall = [results.overall(tasks, method, setting) for method in methods]
    summary = (
        (text_cell("geometric mean"), Cell(""), *(_ratio(each and each.mean) for each in overall)),
        (text_cell("worst"), Cell(""), *(_worst(each) for each in overall)),
    )
    return Table(("task", "best rate", *map(label, methods)), tuple(rows), summary=summary)


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
                text_cell(task),
                _best(results, task, setting),
                _number(results.spread(task, setting), ".2f"),
                *(
                    Cell(
                        ", ".join(f"{rate:.2g}" for rate in each.values()) or NOT_RUN,
                        fmean(each.values()) if each else "",
                    )
                    for each in chosen
                ),
                _per_cent(results.extra_steps(task, OURS, setting), digits=1),
            )
        )
    names = (f"{label(method)}, by seed" for method in methods)
    return Table(("task", "best held", "its seeds differ by", *names, "extra steps"), tuple(rows))


def made_again(records: Records, again: Sequence[Records]) -> Table:
    """Return how runs that were made again differ from the records, one row for each place."""
    rows = []
    for those in again:
        pairs = [(run, records[key]) for key, run in those.items() if key in records]
        equal, rate = (
            sum(all(run[key] == kept[key] for key in keys) for run, kept in pairs)
            for keys in (("validation", "test", "final_test", "rate", "cost"), ("rate",))
        )
        ratios = {run["task"]: run["test"] / kept["test"] for run, kept in pairs}
        far = {task: max(ratio, 1 / ratio) for task, ratio in ratios.items()}
        worst = max(far, key=lambda task: far[task])
        made = pairs[0][0]
        rows.append(
            (
                text_cell(f"{made['cpu']}, torch {made['torch']}, commit {made['commit'][:12]}"),
                *(Cell(f"{count} of {len(pairs)}", count) for count in (equal, rate)),
                _ratio(geometric_mean(list(ratios.values())))._replace(tone=""),
                _number(median(far.values()), ".3f"),
                _number(far[worst], ".3f")._replace(detail=worst),
            )
        )
    titles = ("equal in every digit", "same rate", "mean over the kept one", "differ by, median")
    return Table(("made on", *titles, "at most"), tuple(rows))


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
    lines += [tuple(map(_markdown, row)) for row in (*table.rows, *table.summary)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown(cell: Cell) -> str:
    text = cell.text.replace("|", "\\|")
    text = f"**{text}**" if cell.is_best and text else text
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


def _ratio(mean: Mean | None, *, is_best: bool = False) -> Cell:
    if mean is None:
        return Cell(NOT_RUN)
    detail = ""
    if mean.low is not None and mean.high is not None and mean.value < BROKEN * 0.999:
        detail = f"{_short(mean.low)} to {_short(mean.high)}"
    tone = next(name for bound, name in _TONES if mean.value <= bound)
    return Cell(_short(mean.value), mean.value, is_best, detail=detail, tone=tone)


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
