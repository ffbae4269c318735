"""Where an axis ends: what is far from the better methods is cut off, and said."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

# Beyond this ratio of the limits a linear axis shows the largest values alone.
_WIDE = 10.0
# The share of the better methods' values that may be cut off: the first epochs.
_CUT = 0.1
# An axis may be so many times longer than the better half needs, to show what is worse.
_STRETCH = 3.0
_MARGIN, _WORSE_MARGIN = 0.06, 0.12


class Limits(NamedTuple):
    """The ends of an axis.

    Attributes:
        low: the lower end.
        high: the upper end.
        is_log: whether the axis is logarithmic.
        is_cut: whether anything is outside.
        beyond: the methods whose curve ends outside.
    """

    low: float
    high: float
    is_log: bool
    is_cut: bool
    beyond: tuple[str, ...]


def curve_limits(curves: Mapping[str, Numbers], *, higher_is_better: bool) -> Limits | None:
    """Return limits within which the better half of some curves can be read.

    Args:
        curves: by method; values that are not finite do not count.
        higher_is_better: which end of the axis is the good one. The other end cuts off a tenth
            of the better half's values at most, and what is much worse.

    Returns:
        None if there is nothing to draw.
    """
    known = {name: each[np.isfinite(each)] for name, each in curves.items()}
    known = {name: each for name, each in known.items() if each.size}
    if not known:
        return None
    sign = 1.0 if higher_is_better else -1.0
    ends = {name: sign * float(each[-1]) for name, each in known.items()}
    ranked = sorted(ends, key=lambda name: -ends[name])
    better = ranked[: max(1, math.ceil(len(ranked) / 2))]
    values = np.concatenate([known[name] for name in better])
    everything = np.concatenate(list(known.values()))
    is_log = not higher_is_better and bool(
        everything.min() > 0 and _worst(values, sign) / values.min() > _WIDE
    )
    scale = np.log if is_log else np.asarray
    shown = scale(values)
    best, worst = sign * float((sign * shown).max()), float(_worst(shown, sign))
    # A method that is not too far off in the second half of its epochs is seen as well.
    reach = abs(best - worst)
    for each in known.values():
        late = float((sign * scale(each[each.size // 2 :])).min())
        if 0 < sign * best - late <= _STRETCH * abs(best - worst):
            reach = max(reach, sign * best - late)
    furthest = sign * best - float((sign * scale(everything)).min())
    is_cut = furthest > max(reach, _STRETCH * abs(best - worst))
    end = best - sign * (reach if is_cut else furthest)
    span = abs(best - end) or abs(best) * 0.1 or 1.0
    better_end = best + sign * _MARGIN * span
    worse_end = end - sign * (_WORSE_MARGIN if is_cut else _MARGIN) * span
    low, high = sorted((worse_end, better_end))
    if is_log:
        low, high = math.exp(low), math.exp(high)
    beyond = tuple(name for name in known if not low <= known[name][-1] <= high)
    return Limits(low, high, is_log, is_cut, beyond)


def _worst(values: Numbers, sign: float) -> float:
    return float(np.percentile(values, 100 * (_CUT if sign > 0 else 1 - _CUT)))
