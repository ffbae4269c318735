"""The schedule of a held rate: warmed up, held, decayed to zero."""

from __future__ import annotations

# With a known length: this first part of the run warms up, over this last part the rate decays.
_WARM_UP, _DECAY = 0.05, 0.25
# Steps of the warm-up where the length is not known.
_ANYTIME_WARM_UP = 50


def default_warm_up(total_steps: int | None) -> int:
    """Return how many steps a run of this length warms up.

    Example:
        >>> default_warm_up(2000)
        100
    """
    return _ANYTIME_WARM_UP if total_steps is None else round(_WARM_UP * total_steps)


def share_left(step: int, total_steps: int | None) -> float:
    """Return which share of a held rate the decay has left at a step, counted from 0.

    Example:
        >>> [share_left(step, 8) for step in (0, 6, 7)]
        [1.0, 1.0, 0.5]
    """
    if total_steps is None:
        return 1.0
    return min(1.0, max(total_steps - step, 1) / (_DECAY * total_steps))


def share_of_rate(
    step: int,
    total_steps: int | None,
    *,
    warm_up: int = 0,
    began: int = 0,
) -> float:
    """Return which share of the chosen rate a step is made with.

    Args:
        step: of the run, counted from 0.
        total_steps: of the run; None is unknown, then there is no decay.
        warm_up: steps over which the rate rises linearly to its full value.
        began: the step at which the warm-up begins.

    Example:
        >>> [share_of_rate(step, 8, warm_up=2) for step in (0, 1, 6, 7)]
        [0.5, 1.0, 1.0, 0.5]
    """
    rising = min(1.0, max(step + 1 - began, 1) / warm_up) if warm_up else 1.0
    return rising * share_left(step, total_steps)
