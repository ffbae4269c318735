"""Tables for a page: the methods side by side, and in what configurations differ."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from annealtune.studies.records import Study, shared_options
from annealtune.studies.statistics import (
    Comparison,
    Measure,
    Statistics,
    mean_result,
)
from annealtune.training.config import flat


class Cell(NamedTuple):
    """What stands in one place of a table.

    Attributes:
        text: is shown.
        order: what the cell is sorted by; one without comes last.
        is_best: whether it is bold.
        is_number: numbers stand to the right.
        span: how many columns it takes.
        detail: smaller, below it.
        tone: the name of its shade.
    """

    text: str
    order: float | str = ""
    is_best: bool = False
    is_number: bool = True
    span: int = 1
    detail: str = ""
    tone: str = ""


class Table(NamedTuple):
    """A table for a page.

    Attributes:
        columns: titles.
        rows: the cells of each row.
        groups: titles above the columns and how many of them each spans; may be empty.
        summary: rows about the others, which stay above when those are sorted.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    groups: tuple[tuple[str, int], ...] = ()
    summary: tuple[tuple[Cell, ...], ...] = ()

    @property
    def titles(self) -> list[tuple[str, bool]]:
        """Return the title of each column and whether it holds text; numbers stand to the right."""
        longest = max(self.rows, key=len, default=())
        return list(zip(self.columns, (not cell.is_number for cell in longest), strict=False))


def text_cell(text: str) -> Cell:
    """Return a cell of text, sorted by it."""
    return Cell(text, text, is_number=False)


def number_cell(value: float | None, text: Callable[[float], str], is_best: bool = False) -> Cell:
    """Return a cell of a number, sorted by its value; one that is not known comes last.

    Args:
        value: the number.
        text: returns it as it is shown.
        is_best: whether it is bold.
    """
    if value is None:
        return Cell("n/a")
    # Seven digits are more than any cell shows; sixteen made a tenth of a large page.
    return Cell(text(value), float(f"{value:.7g}"), is_best)


def comparison_table(statistics: Statistics) -> Table:
    """Return how each pair of methods differs by one measure, the better one of a pair first."""
    columns = ("method", "against", "mean difference", "95 % interval", "seeds won, lost, tied")
    return Table(
        (*columns, "Wilcoxon p", "p after Holm"),
        tuple(_comparison_row(statistics.measure, each) for each in statistics.comparisons),
    )


def _comparison_row(measure: Measure, each: Comparison) -> tuple[Cell, ...]:
    ends = [measure.number(end, signed=True) for end in (each.low, each.high) if end is not None]
    counts = f"{each.won}, {each.lost}, {each.tied}"
    if each.unpaired:
        counts += f" ({each.unpaired} unpaired)"
    return (
        text_cell(each.first),
        text_cell(each.second),
        number_cell(each.difference, measure.difference),
        number_cell(each.low, lambda _: " to ".join(ends)),
        Cell(counts, each.won),
        number_cell(each.p_value, probability),
        number_cell(each.corrected_p_value, probability, each.is_significant),
    )


def cost_table(study: Study) -> Table:
    """Return what the finished runs of each method spent on training, on average."""
    rows = []
    for method in study.methods:
        forwards, backwards, seconds = (
            mean_result(study.of(method), key)
            for key in ("forwards", "backwards", "training_seconds")
        )
        # A backward takes about twice the arithmetic of a forward.
        total = None if forwards is None or backwards is None else forwards + 2 * backwards
        counts = [number_cell(n, "{:,.0f}".format) for n in (forwards, backwards, total)]
        rows.append((text_cell(method), *counts, number_cell(seconds, duration)))
    columns = ("method", "forwards", "backwards", "forwards + 2 × backwards", "training")
    return Table(columns, tuple(rows))


def difference_table(configs: Mapping[str, Mapping[str, Any]]) -> Table | None:
    """Return the options in which configs differ, one a row; None if there are none."""
    known, shared = [flat(config) for config in configs.values()], shared_options(configs.values())
    rows = [
        (text_cell(key), *(text_cell(option(each[key]) if key in each else "–") for each in known))
        for key in sorted({key for each in known for key in each})
        if key not in shared
    ]
    return Table(("option", *configs), tuple(rows)) if rows else None


def option(value: Any) -> str:
    """Return the value of an option as it is shown.

    Example:
        >>> option([0.1, True, None])
        '0.1, yes, None'
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(option, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Return a time as it is shown.

    Example:
        >>> duration(3.14159), duration(754), duration(9000)
        ('3.1 s', '12 min 34 s', '2 h 30 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def probability(value: float) -> str:
    """Return a p-value as it is shown.

    Example:
        >>> probability(0.25), probability(1 / 512), probability(1e-9)
        ('0.25', '0.0020', '< 0.0001')
    """
    if value < 0.0001:
        return "< 0.0001"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"
