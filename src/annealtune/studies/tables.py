"""Table 1 of the paper: seed by seed, then what the seeds of each method come to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from .measures import DIGITS, MEASURES, Measure, score, test_set_chose
from .results import RunRecord, Study
from .statistics import Statistics

Kind = Literal["run", "mean", "deviation", "median", "best"]


class ResultRow(NamedTuple):
    """One line of Table 1: a run, or what the runs of a method come to.

    Attributes:
        kind: what it is.
        method: its label.
        run: the run, None for a line about all of them.
        values: by measure; one without a number is left out.
    """

    kind: Kind
    method: str
    run: RunRecord | None
    values: dict[Measure, float]


class Cell(NamedTuple):
    """What stands in one place of a table."""

    text: str
    order: float | str = ""
    """What the cell is sorted by."""
    is_best: bool = False
    is_number: bool = True
    span: int = 1
    """How many columns it takes."""


class Table(NamedTuple):
    """A table for a page.

    Attributes:
        groups: titles above the columns and how many of them each spans; may be empty.
        columns: titles.
        rows: the cells of each row.
        footer: rows that stay below when the others are sorted.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    groups: tuple[tuple[str, int], ...] = ()
    footer: tuple[tuple[Cell, ...], ...] = ()

    @property
    def texts(self) -> tuple[bool, ...]:
        """Whether each column holds text; numbers stand to the right."""
        whole = [row for row in self.rows if len(row) == len(self.columns)]
        if not whole:
            return tuple(place != 1 for place in range(len(self.columns)))
        return tuple(not cell.is_number for cell in whole[0])


def result_rows(study: Study, statistics: Mapping[Measure, Statistics]) -> list[ResultRow]:
    """Return the lines of Table 1: every run, then mean, deviation, median and best of each method.

    Args:
        study: whose runs are listed, also those without numbers.
        statistics: by measure, as `study_statistics` returns them.
    """
    rows = [
        ResultRow("run", run.method, run, _known({m: score(run, m) for m in MEASURES}))
        for run in study.runs
    ]
    kinds: tuple[Kind, ...] = ("mean", "deviation", "median", "best")
    for kind in kinds:
        for method in study.methods:
            values = {m: getattr(each.summary(method), kind) for m, each in statistics.items()}
            rows.append(ResultRow(kind, method, None, _known(values)))
    return rows


def winners(rows: Sequence[ResultRow]) -> set[tuple[int, Measure]]:
    """Return which numbers are the best of their seed, or of their kind of line.

    Returns:
        Pairs of a row's index and a measure. Where fewer than two methods have a number, or all
        have the same, none of them won; nor is there a best mean of different seeds.
    """
    found = set()
    seeds = _seeds(rows)
    rivals: dict[tuple[Kind, int | None], list[int]] = {}
    for index, row in enumerate(rows):
        if row.kind != "deviation":
            rivals.setdefault((row.kind, row.run.seed if row.run else None), []).append(index)
    for (kind, _), group in rivals.items():
        for measure in MEASURES:
            values = {
                i: round(rows[i].values[measure], DIGITS)
                for i in group
                if measure in rows[i].values
            }
            is_fair = kind == "run" or len({seeds[rows[i].method, measure] for i in values}) == 1
            if is_fair and len(set(values.values())) > 1:
                best = measure.best(list(values.values()))
                found |= {(i, measure) for i, value in values.items() if value == best}
    return found


def shown_measures(study: Study, statistics: Iterable[Measure]) -> list[Measure]:
    """Return the measures worth a column: known, and not the same number twice.

    Where the test set takes the place of the validation set, both have the same numbers.
    """
    repeated = test_set_chose(study)
    return [m for m in statistics if not (repeated and m.part == "test")]


def results_table(study: Study, rows: Sequence[ResultRow], measures: Sequence[Measure]) -> Table:
    """Return Table 1 of the paper for a page.

    Args:
        study: whose table it is.
        rows: of `result_rows`.
        measures: the columns.
    """
    won = winners(rows)
    body: list[tuple[Cell, ...]] = []
    footer: list[tuple[Cell, ...]] = []
    for index, row in enumerate(rows):
        values = (
            (_state_cell(row.run, len(measures)),)
            if row.run is not None and row.run.result is None
            else tuple(_value_cell(row, m, (index, m) in won) for m in measures)
        )
        cells = (Cell(row.method, row.method, is_number=False), _seed_cell(row), *values)
        if row.kind != "median":
            (body if row.kind == "run" else footer).append(cells)
    part = "test" if test_set_chose(study) else "validation"
    groups = []
    for place in dict.fromkeys((m.epoch, m.part) for m in measures):
        epoch, of = place
        title = f"{epoch} epoch, {part if of == 'validation' else of} set"
        groups.append((title, sum((m.epoch, m.part) == place for m in measures)))
    titles = [m.quantity_title for m in measures] or ["state"]
    return Table(
        ("method", study.vary.replace("_", " "), *titles),
        tuple(body),
        (("", 2), *groups) if groups else (),
        tuple(footer) if measures else (),
    )


def state_of(run: RunRecord) -> str:
    """Return in words why a run has no result."""
    if is_pruned(run):
        return str(run.reason)
    state = {"missing": "not begun", "unfinished": "not finished"}.get(run.status, run.status)
    return f"{state}: {run.reason}" if run.reason else state


def is_pruned(run: RunRecord) -> bool:
    """Whether a search for the best seed gave a run up."""
    return run.status == "unfinished" and (run.reason or "").startswith("pruned ")


def _seed_cell(row: ResultRow) -> Cell:
    if row.run is None:
        return Cell(row.kind, is_number=False)
    return Cell(str(row.run.seed), row.run.seed)


def _state_cell(run: RunRecord, span: int) -> Cell:
    return Cell(state_of(run), is_number=False, span=max(1, span))


def _value_cell(row: ResultRow, measure: Measure, is_best: bool) -> Cell:
    value = row.values.get(measure)
    text = measure.text(value)
    if row.kind == "deviation" and measure.quantity == "accuracy" and value is not None:
        text = measure.number(value)
    return Cell(text, order_of(value), is_best)


def order_of(value: float | None) -> float | str:
    """Return what a number is sorted by; one that is not known comes last.

    Seven digits are more than any cell shows; sixteen made a tenth of a large page.
    """
    return "" if value is None else float(f"{value:.7g}")


def _seeds(rows: Sequence[ResultRow]) -> dict[tuple[str, Measure], frozenset[int]]:
    """Return for which seeds a method has a number, by method and measure."""
    found: dict[tuple[str, Measure], frozenset[int]] = {}
    for row in rows:
        if row.run is not None:
            for measure in row.values:
                place = (row.method, measure)
                found[place] = found.get(place, frozenset()) | {row.run.seed}
    return found


def _known(values: Mapping[Measure, float | None]) -> dict[Measure, float]:
    return {measure: value for measure, value in values.items() if value is not None}
