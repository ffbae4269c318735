"""Table 1 as files: ``table.csv`` for programs, ``table.tex`` for a paper.

Neither holds a time: the same study gives the same files, whichever machine ran it.
"""

import csv
import io
from collections import Counter
from collections.abc import Sequence

from annealtune.studies.records import Study
from annealtune.studies.statistics.measures import MEASURES, Measure, test_set_chose

from .table_1 import ResultRow, winners

_TEX_QUANTITY = {"accuracy": r"Acc.~(\%)", "loss": "Loss", "paper_loss": "Loss (paper)"}
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


def results_csv(rows: Sequence[ResultRow]) -> str:
    """Return Table 1 with full precision, a line for each run, then the lines about each method."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    costs = ("best_epoch", "forwards", "backwards")
    writer.writerow(
        ["row", "method", "seed", "status", "reason", *costs, *(m.key for m in MEASURES)]
    )
    for row in rows:
        run = row.run
        result = run.result or {} if run else {}
        writer.writerow(
            [
                row.kind,
                row.method,
                "" if run is None else run.seed,
                "" if run is None else run.status,
                "" if run is None else run.reason or "",
                *(result.get(key, "") for key in costs),
                *(repr(row.values[m]) if m in row.values else "" for m in MEASURES),
            ]
        )
    return text.getvalue()


def results_tex(study: Study, rows: Sequence[ResultRow], measures: Sequence[Measure]) -> str:
    """Return Table 1 as a LaTeX tabular with bold winners; needs the package booktabs."""
    won = winners(rows)
    measures = [measure for measure in measures if measure not in _NOT_IN_TEX]
    lines = [
        f"% {_one_line(study.command)}",
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{ll{'r' * len(measures)}}}",
        r"\toprule",
        *_heads(study, measures),
    ]
    before: tuple[str, str | None] | None = None
    for index, row in enumerate(rows):
        if row.kind == "median":
            continue
        section = (row.kind, row.method if row.kind == "run" else None)
        if section != before:
            lines.append(r"\midrule")
        named = row.kind != "run" or section != before
        before = section
        cells = [escape_tex(row.method) if named else "", _seed(row)]
        cells += [_number(row, measure, (index, measure) in won) for measure in measures]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape_tex(text: str) -> str:
    r"""Return text that LaTeX prints as it is, on one line.

    Example:
        >>> escape_tex("sgd_sa & 5%")
        'sgd\\_sa \\& 5\\%'
    """
    return _one_line(text).translate(_TEX_ESCAPES)


def _heads(study: Study, measures: Sequence[Measure]) -> list[str]:
    if not measures:
        return [r"Method & Seed \\"]
    of_test = test_set_chose(study)
    groups = Counter(
        f"{each.epoch.capitalize()} epoch, {'test' if of_test else each.part}" for each in measures
    )
    above = " & ".join(rf"\multicolumn{{{n}}}{{c}}{{{title}}}" for title, n in groups.items())
    rules, start = [], 3
    for width in groups.values():
        rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    titles = " & ".join(_TEX_QUANTITY[measure.quantity] for measure in measures)
    return [rf" & & {above} \\", " ".join(rules), rf"Method & Seed & {titles} \\"]


def _seed(row: ResultRow) -> str:
    if row.run is None:
        return row.kind
    return str(row.run.seed) if row.run.result is not None else f"{row.run.seed} ({row.run.status})"


def _number(row: ResultRow, measure: Measure, is_best: bool) -> str:
    value = row.values.get(measure)
    if value is None:
        return "--"
    text = measure.number(value).replace("\N{MINUS SIGN}", "-")
    return rf"\textbf{{{text}}}" if is_best else text


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
