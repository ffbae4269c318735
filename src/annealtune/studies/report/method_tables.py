"""The methods of a study side by side: what they reached, how they differ, what they cost."""

from collections.abc import Sequence

from annealtune.studies.statistics.comparisons import Comparison
from annealtune.studies.statistics.costs import Cost
from annealtune.studies.statistics.measures import NOT_AVAILABLE, Measure
from annealtune.studies.statistics.summaries import Statistics, Summary

from .tables import Cell, Table, number_cell, text_cell


def summary_table(statistics: Statistics) -> Table:
    """Return what each method reached by one measure, the best one first."""
    measure = statistics.measure
    order = {method: rank for rank, method in enumerate(statistics.ranking)}
    summaries = sorted(statistics.summaries, key=lambda s: order.get(s.method, len(order)))
    best = {
        field: measure.best([value for value in values if value is not None])
        for field in ("mean", "median", "best")
        if statistics.is_balanced
        and (values := [getattr(summary, field) for summary in summaries])
        and len({value for value in values if value is not None}) > 1
    }

    def cell(summary: Summary, field: str) -> Cell:
        value = getattr(summary, field)
        text = measure.text(value)
        if field == "deviation" and measure.quantity == "accuracy" and value is not None:
            text = f"{measure.number(value)} points"
        if field == "best" and value is not None:
            text += f" (seed {summary.best_seed})"
        is_best = value is not None and value == best.get(field)
        return number_cell(text, value, is_best)

    return Table(
        ("method", "n of planned", "failed", "mean", "deviation", "median", "best"),
        tuple(
            (
                text_cell(summary.method),
                Cell(f"{summary.n} of {summary.planned}", summary.n),
                Cell(str(summary.failed), summary.failed),
                *(cell(summary, field) for field in ("mean", "deviation", "median", "best")),
            )
            for summary in summaries
        ),
    )


def comparison_table(statistics: Statistics) -> Table:
    """Return how each pair of methods differs by one measure, the better one of a pair first."""
    measure, rank = statistics.measure, {m: r for r, m in enumerate(statistics.ranking)}
    rows = []
    for each in statistics.comparisons:
        last = len(rank)
        turned = rank.get(each.second, last) < rank.get(each.first, last)
        rows.append(_comparison_row(measure, each.reversed() if turned else each))
    rows.sort(key=lambda row: (rank.get(row[0].text, len(rank)), rank.get(row[1].text, len(rank))))
    return Table(
        (
            "method",
            "against",
            "mean difference",
            "95 % interval",
            "seeds won, lost, tied",
            "Wilcoxon p",
            "p after Holm",
        ),
        tuple(rows),
    )


def cost_table(costs: Sequence[Cost], statistics: Statistics | None) -> Table:
    """Return what each method spent, and what it reached if any run has a number."""
    known = [cost.total for cost in costs if cost.total is not None]
    least = min(known, default=None)
    rows = []
    for cost in costs:
        ratio = None if cost.total is None or not least else cost.total / least
        cells = [
            text_cell(cost.method),
            Cell(f"{cost.n} of {cost.planned}", cost.n),
            *(_count_cell(value) for value in (cost.forwards, cost.backwards, cost.total)),
            number_cell(NOT_AVAILABLE if ratio is None else f"{ratio:.2f} ×", ratio),
            number_cell(duration(cost.seconds), cost.seconds),
        ]
        if statistics:
            mean = statistics.summary(cost.method).mean
            cells.append(number_cell(statistics.measure.text(mean), mean))
        rows.append(tuple(cells))
    columns = ("method", "n of planned", "forwards", "backwards", "cost", "relative", "training")
    return Table(columns + ((statistics.measure.title,) if statistics else ()), tuple(rows))


def duration(seconds: float | None) -> str:
    """Return a time as it is shown.

    Example:
        >>> duration(3.14159), duration(754), duration(9000)
        ('3.1 s', '12 min 34 s', '2 h 30 min')
    """
    if seconds is None:
        return NOT_AVAILABLE
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def probability(value: float | None) -> str:
    """Return a p-value as it is shown.

    Example:
        >>> probability(0.25), probability(1 / 512), probability(1e-9)
        ('0.25', '0.0020', '< 0.0001')
    """
    if value is None:
        return NOT_AVAILABLE
    if value < 0.0001:
        return "< 0.0001"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def interval(measure: Measure, comparison: Comparison) -> str:
    """Return the interval of a difference as it is shown."""
    if comparison.low is None or comparison.high is None:
        return NOT_AVAILABLE
    low, high = (measure.number(v, signed=True) for v in (comparison.low, comparison.high))
    return f"{low} to {high}"


def _comparison_row(measure: Measure, each: Comparison) -> tuple[Cell, ...]:
    corrected = each.corrected_p_value
    counts = f"{each.won}, {each.lost}, {each.tied}"
    if each.unpaired:
        counts += f" ({each.unpaired} unpaired)"
    return (
        text_cell(each.first),
        text_cell(each.second),
        number_cell(measure.difference(each.difference), each.difference),
        number_cell(interval(measure, each), each.low),
        Cell(counts if each.n or each.unpaired else NOT_AVAILABLE, each.won),
        number_cell(probability(each.p_value), each.p_value),
        number_cell(probability(corrected), corrected, each.is_significant),
    )


def _count_cell(value: float | None) -> Cell:
    return number_cell(NOT_AVAILABLE if value is None else f"{value:,.0f}", value)
