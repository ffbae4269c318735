"""An axis on which good scores can be told apart and bad ones still be seen."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from annealtune.studies.statistics.measures import Measure

from .limits import Numbers
from .style import in_per_cent

Axis = Literal["x", "y"]

# Beyond this ratio of the largest error, or loss, to the smallest one, ratios are what counts.
_WIDE = 3.0
_MARGIN = 0.07
_STEPS = (5, 3, 2, 1)
_ERRORS = [each * 10.0**-power for power in range(7) for each in _STEPS]
_MOST_TICKS, _MOST_NARROW = 8, 4
_NARROW = 6.0  # inches of a figure in which few ticks have room beside one another


def fit_score_axis(axes: Axes, measure: Measure, scores: Sequence[float], axis: Axis = "y") -> None:
    """Make an axis hold every score, the better ones up or to the right.

    Accuracies of 60, 97 and 98 % are as far apart as their errors of 40, 3 and 2 %: equal ratios of
    the error have equal lengths. So have equal ratios of a loss.

    Args:
        axes: whose axis.
        measure: of the scores.
        scores: all that is drawn, at least one.
        axis: the vertical one, y, or the horizontal one, x.
    """
    best, worst = measure.best(list(scores)), measure.worst(list(scores))
    is_accuracy = measure.quantity == "accuracy"
    has_ratios = shows_ratios(measure, scores)
    if has_ratios and is_accuracy:
        _fit_errors(axes, best, worst, min(1 - score for score in scores if score < 1), axis)
    elif has_ratios:
        _fit_losses(axes, best, worst, axis)
    else:
        room = _MARGIN * (best - worst) or 0.02 * abs(best) or 1e-3
        axes.set(**{f"{axis}lim": (worst - room, best + room)})
    if is_accuracy:
        in_per_cent(axes, axis)


def shows_ratios(measure: Measure, scores: Sequence[float]) -> bool:
    """Whether equal lengths are equal ratios: scores that differ little are on an even axis."""
    if measure.quantity == "accuracy":
        errors = [1 - score for score in scores if score < 1]
        return bool(errors) and max(errors) / min(errors) > _WIDE
    return min(scores) > 0 and max(scores) / min(scores) > _WIDE


def _fit_errors(axes: Axes, best: float, worst: float, smallest: float, axis: Axis) -> None:
    # Without any error at all a score is drawn as if it had half of the smallest one.
    least = smallest / 2

    def up(accuracy: Numbers) -> Numbers:
        return np.negative(np.log(np.maximum(1 - np.asarray(accuracy), least)))

    def down(height: Numbers) -> Numbers:
        return np.asarray(1 - np.exp(-np.asarray(height)))

    low, high = (float(up(np.array(score))) for score in (worst, best))
    room = _MARGIN * (high - low)
    low, high = (float(down(np.array(end))) for end in (low - room, high + room))
    getattr(axes, f"set_{axis}scale")("function", functions=(up, down))
    axes.set(**{f"{axis}lim": (low, min(high, 1 - least))})
    _set_ticks(axes, [1 - error for error in _ERRORS if low <= 1 - error <= high], axis)


def _fit_losses(axes: Axes, best: float, worst: float, axis: Axis) -> None:
    room = (worst / best) ** _MARGIN
    high, low = worst * room, best / room
    axes.set(**{f"{axis}scale": "log", f"{axis}lim": (high, low)})
    powers = range(math.ceil(math.log10(high)), math.floor(math.log10(low)) - 1, -1)
    ticks = [each * 10.0**power for power in powers for each in _STEPS]
    _set_ticks(axes, [tick for tick in ticks if low <= tick <= high], axis)
    getattr(axes, f"{axis}axis").set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))


def _set_ticks(axes: Axes, ticks: list[float], axis: Axis) -> None:
    """Set ticks, the worst first; of too many the best one and every so many-th is left."""
    figure = axes.get_figure(root=True)
    is_narrow = axis == "x" and figure is not None and figure.get_figwidth() < _NARROW
    most = _MOST_NARROW if is_narrow else _MOST_TICKS
    kept = ticks[-1 :: -math.ceil(len(ticks) / most)] if ticks else []
    of_axis = getattr(axes, f"{axis}axis")
    of_axis.set_major_locator(FixedLocator(kept))
    of_axis.set_minor_locator(NullLocator())
