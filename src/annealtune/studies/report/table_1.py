"""Table 1 of the paper: seed by seed, then a summary of each method."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from annealtune.studies.records import RunRecord, Study
from annealtune.studies.reproduction import PAPER_STUDIES
from annealtune.studies.statistics.measures import DIGITS, MEASURES, Measure, score, test_set_chose
from annealtune.studies.statistics.summaries import Statistics

from .tables import Cell, Table, number_cell, text_cell

Kind = Literal["run", "mean", "deviation", "median", "best"]


class ResultRow(NamedTuple):
    """One line of Table 1: a run, or a summary of all runs of a method.

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


def result_rows(study: Study, statistics: Mapping[Measure, Statistics]) -> list[ResultRow]:
    """Return the lines of Table 1: every run, then mean, deviation, median and best of each method.

    Runs without numbers are listed as well.
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
            known = [i for i in group if measure in rows[i].values]
            values = {i: round(rows[i].values[measure], DIGITS) for i in known}
            is_fair = kind == "run" or len({seeds[rows[i].method, measure] for i in known}) == 1
            if is_fair and len(set(values.values())) > 1:
                best = measure.best(list(values.values()))
                found |= {(i, measure) for i, value in values.items() if value == best}
    return found


def shown_measures(study: Study, statistics: Iterable[Measure]) -> list[Measure]:
    """Return the measures worth a column: known, and not the same number twice.

    Where the test set takes the place of the validation set, both have the same numbers. The loss
    on the paper's scale is for its own studies.
    """
    repeated, of_paper = test_set_chose(study), study.name in PAPER_STUDIES
    return [
        m
        for m in statistics
        if not (repeated and m.part == "test") and (of_paper or m.quantity != "paper_loss")
    ]


def results_table(study: Study, rows: Sequence[ResultRow], measures: Sequence[Measure]) -> Table:
    """Return Table 1 of the paper for a page, with a column for each of the measures."""
    won = winners(rows)
    body: list[tuple[Cell, ...]] = []
    footer: list[tuple[Cell, ...]] = []
    for index, row in enumerate(rows):
        values = [value_cell(row, m, (index, m) in won) for m in measures]
        if row.run is None:
            if row.kind != "median":
                kind = Cell(row.kind, is_number=False)
                footer.append((text_cell(row.method), kind, *values))
            continue
        if row.run.result is None:
            values = [Cell(state_of(row.run), is_number=False, span=max(1, len(measures)))]
        body.append((text_cell(row.method), Cell(str(row.run.seed), row.run.seed), *values))
    part = "test" if test_set_chose(study) else "validation"
    groups = Counter(
        f"{m.epoch} epoch, {part if m.part == 'validation' else m.part} set" for m in measures
    )
    titles = [m.quantity_title for m in measures] or ["state"]
    return Table(
        ("method", study.vary.replace("_", " "), *titles),
        tuple(body),
        (("", 2), *groups.items()) if groups else (),
        tuple(footer) if measures else (),
    )


def state_of(run: RunRecord) -> str:
    """Return in words why a run has no result."""
    if run.reason is None:
        return run.state
    return run.reason if run.state == "pruned" else f"{run.state}: {run.reason}"


def value_cell(row: ResultRow, measure: Measure, is_best: bool) -> Cell:
    """Return the number of a line by one measure."""
    value = row.values.get(measure)
    text = measure.text(value)
    if row.kind == "deviation" and measure.quantity == "accuracy" and value is not None:
        text = measure.number(value)
    return number_cell(text, value, is_best)


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
