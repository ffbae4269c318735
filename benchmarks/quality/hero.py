"""The first figure: what a wrong fixed rate costs, and the self-tuned run beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from annealtune.studies.report.figures.panels import Panel
from annealtune.studies.report.figures.style import FAINT, INK, SERIES

from .methods import at_rate
from .oracle import tried_rates
from .plan import CENTRE
from .summaries import OURS, Results

WIDTH, HEIGHT = 3.4, 2.2  # inches: three beside each other on a page, one on a phone
# A rate whose score is more than this many times the lowest is marked at the top.
_HIGHEST = 30.0
_TUNED, _FIXED, _BROKEN = SERIES[0], SERIES[6], SERIES[1]
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def hero_tasks(results: Results, count: int = 6) -> list[str]:
    """Return the tasks of the figure, lowest best rate first; the rule does not look at our runs.

    They are evenly spaced among all tasks in the order of their best rate, level ones by name; all
    are sealed, as long as there are sealed tasks.
    """
    tasks = results.tasks(sealed=True) or results.tasks()
    known = sorted((results.rate(task) or 0.0, task) for task in tasks if results.runs(task, OURS))
    last, most = len(known) - 1, min(count, len(known))
    return [known[round(n * last / max(most - 1, 1))][1] for n in range(most)]


def panels(results: Results) -> list[tuple[Panel, str]]:
    """Return the panels and the name of the task of each."""
    found = []
    for number, task in enumerate(hero_tasks(results), 1):
        title = f"{task}: test score of AdamW by fixed rate, and of the self-tuned run"
        draw = partial(draw_task, results=results, task=task)
        found.append((Panel(f"hero-{number}", title, draw, HEIGHT), task))
    return found


def draw_task(axes: Axes, results: Results, task: str) -> Axes:
    """Draw one task into axes.

    Args:
        axes: to draw into; their figure is made narrower.
        results: what is drawn.
        task: its name.
    """
    axes.figure.set_figwidth(WIDTH)  # type: ignore[union-attr]
    tried = tried_rates(results.records, task, "adamw")
    scores = {rate: _scores(results, task, at_rate("held", rate)) for rate in tried}
    tuned = [score for score in _scores(results, task, OURS) if score is not None]
    known = [score for each in scores.values() for score in each if score is not None]
    lowest = min([*known, *tuned])
    highest = min(max([*known, *tuned]), _HIGHEST * lowest)
    span = max(math.log(highest / lowest), math.log(1.25))
    bottom, top = lowest * math.exp(-0.12 * span), lowest * math.exp(1.2 * span)

    axes.axvline(CENTRE, color=FAINT, linewidth=1.6, linestyle=(0, (1, 1.4)))
    _draw_fixed(axes, scores, highest)
    _mark_lost(axes, scores, highest, lowest * math.exp(1.11 * span))
    if tuned:
        axes.axhspan(min(tuned), max(tuned), color=_TUNED, alpha=0.22, linewidth=0)
        axes.axhline(math.exp(sum(map(math.log, tuned)) / len(tuned)), color=_TUNED, linewidth=2.2)
    best = results.rate(task)
    if best is not None and scores[best][0] is not None:
        axes.plot(best, scores[best][0], "o", markersize=8.5, color=INK, fillstyle="none", zorder=5)
    _scale(axes, bottom, top, tried)
    return axes


def _scores(results: Results, task: str, method: str) -> list[float | None]:
    """Return the test scores, of seed 0 first; None for a broken run."""
    return [results.score(run) for _, run in sorted(results.runs(task, method).items())]


def _draw_fixed(axes: Axes, scores: dict[float, list[float | None]], highest: float) -> None:
    """Draw the runs at fixed rates: a line through seed 0, faint dots for the other seeds."""
    line = [
        (rate, found[0])
        for rate, found in scores.items()
        if found and found[0] is not None and found[0] <= highest
    ]
    others = [
        (rate, score)
        for rate, found in scores.items()
        for score in found[1:]
        if score is not None and score <= highest
    ]
    if others:
        axes.plot(*zip(*others, strict=True), "o", color=_FIXED, markersize=2.6, alpha=0.5)
    if line:
        axes.plot(
            *zip(*line, strict=True), "o-", color=_FIXED, markersize=4, linewidth=1.2, zorder=3
        )


def _mark_lost(
    axes: Axes, scores: dict[float, list[float | None]], highest: float, height: float
) -> None:
    """Mark the rates of seed 0 that have no score, or one beyond the axis, at the top edge."""
    for rate, found in scores.items():
        if found and found[0] is None:
            axes.plot(rate, height, "x", color=_BROKEN, markersize=5, markeredgewidth=1.6)
        elif found and found[0] is not None and found[0] > highest:
            axes.plot(rate, height, "^", color=_FIXED, markersize=4.5)


def _scale(axes: Axes, bottom: float, top: float, rates: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(rates[0] / 1.5, rates[-1] * 1.5)
    axes.set_ylim(bottom, top)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator([r for r in rates if _is_decade(r)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: power(rate)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(FixedLocator(few_ticks(bottom, top)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda score, _: f"{score:g}"))
    axes.grid(visible=False, axis="x")
    axes.tick_params(length=2.5)


def few_ticks(bottom: float, top: float, most: int = 4) -> list[float]:
    """Return a few round numbers between two, for a logarithmic axis.

    Example:
        >>> few_ticks(0.04, 3.0)
        [0.1, 1.0]
        >>> few_ticks(0.9, 6.0)
        [1.0, 2.0, 5.0]
    """
    powers = range(math.floor(math.log10(bottom)), math.ceil(math.log10(top)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{d}e{p}") for p in powers for d in digits]
        ticks = [tick for tick in ticks if bottom <= tick <= top]
        if len(ticks) <= most:
            break
    if len(ticks) >= 2:
        return ticks
    found = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(bottom, top)
    return [float(f"{tick:.6g}") for tick in found if bottom <= tick <= top]


def power(rate: float) -> str:
    """Return a power of ten as text.

    Example:
        >>> power(1e-3)
        '10⁻³'
    """
    return "10" + str(round(math.log10(rate))).translate(_SUPERSCRIPTS)


def _is_decade(rate: float) -> bool:
    exponent = math.log10(rate)
    return abs(exponent - round(exponent)) < 1e-6
