"""Table 1 of the paper, seed by seed and by method: for a page, as CSV and as LaTeX.

The files hold no time: the same study gives the same bytes, whichever machine ran it.
"""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from annealtune.studies.records import RunRecord, Study
from annealtune.studies.reproduction import PAPER_STUDIES
from annealtune.studies.statistics import (
    DIGITS,
    MEASURES,
    Measure,
    Statistics,
    score,
    test_set_chose,
)

from .tables import Cell, Table, number_cell, text_cell

# A page of paper has no room for every column; those are in the CSV.
_NOT_IN_TEX = {Measure("best", "validation", "paper_loss"), Measure("best", "test", "loss")}
_TEX_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': "{''}",
        **{character: "\\" + character for character in "&%$#_{}"},
    }
)

Kind = Literal["run", "mean", "deviation", "best"]


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
    """Return the lines of Table 1: every run, then mean, deviation and best of each method.

    Runs without numbers are listed as well.
    """
    rows = [
        ResultRow("run", run.method, run, _known({m: score(run, m) for m in MEASURES}))
        for run in study.runs
    ]
    kinds: tuple[Kind, ...] = ("mean", "deviation", "best")
    for kind in kinds:
        for method in study.methods:
            values = {m: getattr(each.summaries[method], kind) for m, each in statistics.items()}
            rows.append(ResultRow(kind, method, None, _known(values)))
    return rows


def winners(rows: Sequence[ResultRow]) -> set[tuple[int, Measure]]:
    """Return which numbers are the best of their seed, or of their kind of line.

    Returns:
        Pairs of a row's index and a measure. Where fewer than two methods have a number, or all
        have the same, none of them won; nor is there a best mean of different seeds.
    """
    seeds: dict[tuple[str, Measure], set[int]] = defaultdict(set)
    rivals: dict[tuple[Kind, int | None, Measure], dict[int, float]] = defaultdict(dict)
    for index, row in enumerate(rows):
        seed = None if row.run is None else row.run.seed
        for measure, value in row.values.items():
            if seed is not None:
                seeds[row.method, measure].add(seed)
            if row.kind != "deviation":
                rivals[row.kind, seed, measure][index] = round(value, DIGITS)
    found = set()
    for (kind, _, measure), values in rivals.items():
        first, *others = (seeds[rows[index].method, measure] for index in values)
        is_fair = kind == "run" or all(other == first for other in others)
        if is_fair and len(set(values.values())) > 1:
            best = measure.best(values.values())
            found |= {(index, measure) for index, value in values.items() if value == best}
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
    summary: list[tuple[Cell, ...]] = []
    for index, row in enumerate(rows):
        values = [value_cell(row, m, (index, m) in won) for m in measures]
        if row.run is None:
            summary.append((text_cell(row.method), Cell(row.kind), *values))
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
        # Nothing is to be summarized where each method has one run.
        tuple(summary) if measures and len(body) > len(study.methods) else (),
    )


def state_of(run: RunRecord) -> str:
    """Return in words why a run has no result."""
    return run.state if run.reason is None else f"{run.state}: {run.reason}"


def value_cell(row: ResultRow, measure: Measure, is_best: bool) -> Cell:
    """Return the number of a line by one measure."""
    text = measure.number if row.kind == "deviation" else measure.text
    return number_cell(row.values.get(measure), text, is_best)


def results_csv(rows: Sequence[ResultRow]) -> str:
    """Return Table 1 with full precision, a line for each run, then the lines about each method."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    costs = ("best_epoch", "forwards", "backwards")
    writer.writerow(
        ["row", "method", "seed", "status", "reason", *costs, *(m.key for m in MEASURES)]
    )
    for row in rows:
        run, result = row.run, row.run.result or {} if row.run else {}
        writer.writerow(
            [
                row.kind,
                row.method,
                *((run.seed, run.status, run.reason) if run else ("", "", "")),
                *(result.get(key, "") for key in costs),
                *(repr(row.values[m]) if m in row.values else "" for m in MEASURES),
            ]
        )
    return text.getvalue()


def results_tex(study: Study, rows: Sequence[ResultRow], measures: Sequence[Measure]) -> str:
    """Return Table 1 as a LaTeX tabular with bold winners; needs the package booktabs."""
    table = results_table(study, rows, [each for each in measures if each not in _NOT_IN_TEX])
    titles = " & ".join(map(escape_tex, table.columns))
    lines = [
        f"% {_one_line(study.command)}",
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{ll{'r' * (len(table.columns) - 2)}}}",
        r"\toprule",
    ]
    if table.groups:
        above = (rf"\multicolumn{{{width}}}{{c}}{{{title}}}" for title, width in table.groups)
        lines.append(f"{' & '.join(above)} \\\\")
    lines += [f"{titles} \\\\", r"\midrule"]
    lines += [f"{' & '.join(map(_tex_cell, row))} \\\\" for row in table.rows]
    lines += [r"\midrule"] * bool(table.summary)
    lines += [f"{' & '.join(map(_tex_cell, row))} \\\\" for row in table.summary]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _tex_cell(cell: Cell) -> str:
    text = escape_tex(cell.text.replace("\N{MINUS SIGN}", "-"))
    if cell.span > 1:
        return rf"\multicolumn{{{cell.span}}}{{l}}{{{text}}}"
    return rf"\textbf{{{text}}}" if cell.is_best else text


def escape_tex(text: str) -> str:
    r"""Return text that LaTeX prints as it is, on one line.

    Example:
        >>> escape_tex("sgd_sa & 5%")
        'sgd\\_sa \\& 5\\%'
    """
    return _one_line(text).translate(_TEX_ESCAPES)


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _known(values: Mapping[Measure, float | None]) -> dict[Measure, float]:
    return {measure: value for measure, value in values.items() if value is not None}
