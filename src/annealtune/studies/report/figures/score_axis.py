"""An axis on which good scores can be told apart and bad ones still be seen."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from annealtune.studies.statistics.measures import Measure

from .limits import Numbers
from .style import in_per_cent

# Beyond this ratio of the largest error, or loss, to the smallest one, ratios are what counts.
_WIDE = 3.0
_MARGIN = 0.07
_ERRORS = [each * 10.0**-power for power in range(7) for each in (5, 3, 2, 1)]
_MOST_TICKS = 8


def fit_score_axis(axes: Axes, measure: Measure, scores: Sequence[float]) -> None:
    """Make the vertical axis hold every score, the better ones up.

    Accuracies of 60, 97 and 98 % are as far apart as their errors of 40, 3 and 2 %: equal ratios of
    the error have equal lengths. So have equal ratios of a loss.

    Args:
        axes: whose vertical axis.
        measure: of the scores.
        scores: all that is drawn, at least one.
    """
    best, worst = measure.best(list(scores)), measure.worst(list(scores))
    if measure.quantity == "accuracy":
        _fit_accuracies(axes, best, worst, [1 - score for score in scores if score < 1])
    elif min(best, worst) > 0 and max(best, worst) / min(best, worst) > _WIDE:
        room = (worst / best) ** _MARGIN
        axes.set_yscale("log")
        axes.set_ylim(worst * room, best / room)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=20))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        _fit_evenly(axes, best, worst)


def _fit_accuracies(axes: Axes, best: float, worst: float, errors: Sequence[float]) -> None:
    if not errors or (1 - worst) / min(errors) <= _WIDE:
        _fit_evenly(axes, best, worst)
        in_per_cent(axes)
        return
    # Without any error at all a score is drawn as if it had half of the smallest one.
    least = min(errors) / 2

    def up(accuracy: Numbers) -> Numbers:
        return np.negative(np.log(np.maximum(1 - np.asarray(accuracy), least)))

    def down(height: Numbers) -> Numbers:
        return np.asarray(1 - np.exp(-np.asarray(height)))

    axes.set_yscale("function", functions=(up, down))
    low, high = (float(up(np.array(score))) for score in (worst, best))
    room = _MARGIN * (high - low)
    low, high = (float(down(np.array(end))) for end in (low - room, high + room))
    axes.set_ylim(low, min(high, 1 - least))
    ticks = [1 - error for error in _ERRORS if low <= 1 - error <= high]
    axes.yaxis.set_major_locator(FixedLocator(_thinned(ticks)))
    axes.yaxis.set_minor_locator(NullLocator())
    in_per_cent(axes)


def _thinned(ticks: list[float]) -> list[float]:
    """Leave out ticks from the worse end's crowd until few enough are left."""
    return ticks[-1 :: -math.ceil(len(ticks) / _MOST_TICKS)] if ticks else []


def _fit_evenly(axes: Axes, best: float, worst: float) -> None:
    room = _MARGIN * (best - worst) or 0.02 * abs(best) or 1e-3
    axes.set_ylim(worst - room, best + room)
