"""Where an axis ends: around everything that is drawn, so that no drop and no spike is hidden."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

# Beyond this ratio of the limits a linear axis shows the largest values alone.
_WIDE = 10.0
_MARGIN = 0.06


class Limits(NamedTuple):
    """The ends of an axis, and whether it is logarithmic."""

    low: float
    high: float
    is_log: bool


def curve_limits(curves: Iterable[Numbers], *, may_be_log: bool) -> Limits | None:
    """Return limits within which all of some curves can be seen.

    Args:
        curves: values that are not finite do not count.
        may_be_log: whether positive values over more than an order of magnitude get a logarithmic
            axis.

    Returns:
        None if there is nothing to draw.
    """
    values = np.concatenate([each[np.isfinite(each)] for each in curves] or [np.array([])])
    if not values.size:
        return None
    low, high = float(values.min()), float(values.max())
    is_log = may_be_log and low > 0 and high / low > _WIDE
    if is_log:
        low, high = math.log(low), math.log(high)
    margin = _MARGIN * ((high - low) or abs(high) * 0.1 or 1.0)
    low, high = low - margin, high + margin
    return Limits(math.exp(low), math.exp(high), True) if is_log else Limits(low, high, False)
