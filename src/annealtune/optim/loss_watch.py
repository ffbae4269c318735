"""Watches the loss of a run without waiting for the device at every step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from annealtune.annealing.race import can_be_summed

# The loss is read once in this many steps.
EVERY = 8
# Progress is certain when it exceeds this many deviations of a single loss ...
_CERTAIN = 8.0
# ... and lost when this share of it is gone.
_LOST = 0.9
# Before that, a loss this many deviations above the first ones is a broken one.
_ABOVE_START = 4.0
# An unsound look may be chance, this many in a row are not.
_STRIKES = 2
# The deviation of a normal distribution over its median distance from the median.
_NORMAL = 1.4826
# How much the newest losses count in the deviation.
_SMOOTHING = 0.2


class Look(NamedTuple):
    """What a reading of the losses has shown: their mean, and what is to be done about it."""

    loss: float
    is_sound: bool  # the weights may be kept as safe ones
    is_broken: bool  # the run must go back to them


class LossWatch:
    """Tells when a run has broken: its loss is not finite, or all that was learned is lost.

    The rule knows neither the unit nor the zero of the loss. With the median of the last eight
    losses, the first such median (start), the lowest one, and the deviation s of single losses, a
    run is broken if a loss is not finite, or if twice in a row the median is above
    ``lowest + 0.9 (start - lowest)`` after a progress of more than 8 s, or above ``start + 4 s``
    before. Medians, also for the deviation, because one loss of a hundred times the usual size, as
    minibatches of one sample have it, breaks nothing. Losses that are all the same at first (zeros,
    say) are no start.

    Args:
        sign: -1 where the loss is maximized.
        measures: whether the loss measures progress; else it may rise as it likes.

    Example:
        >>> watch = LossWatch()
        >>> for loss in (2.0, 2.5, 1.5, 2.0, 2.0, 2.5, 1.5, 2.0):
        ...     watch.see([torch.tensor(loss)])
        >>> watch.look()
        Look(loss=2.0, is_sound=True, is_broken=False)
    """

    def __init__(self, sign: float = 1.0, *, measures: bool = True) -> None:
        self._sign = sign
        self._measures = measures
        self._unread: list[Tensor] = []
        self._steps = 0
        self.start_again()

    def start_again(self) -> None:
        """Forget the losses seen so far."""
        self._unread = []
        self._steps = 0
        self._start: float | None = None
        self._lowest = math.inf
        self._deviation = 0.0
        self._strikes = 0  # unsound looks in a row

    def see(self, losses: list[Tensor]) -> None:
        """Take in the losses of one step, unread."""
        self._unread += losses
        self._steps += 1

    @property
    def is_due(self) -> bool:
        """Whether it is time to read them."""
        return self._steps >= EVERY

    def look(self) -> Look | None:
        """Read the losses and judge them; None if there was none."""
        unread, self._unread, self._steps = self._unread, [], 0
        if not unread:
            return None
        # Those of a checkpoint may lie elsewhere; half precision is read in single.
        device = unread[-1].device
        wide = any(loss.dtype == torch.float64 for loss in unread)
        kind = torch.float64 if wide else torch.float32
        flat = torch.stack([loss.reshape(()).to(device, kind) for loss in unread])
        losses = [self._sign * loss for loss in flat.tolist()]
        if not all(map(can_be_summed, losses)):
            return Look(math.nan, is_sound=False, is_broken=True)
        is_sound = not self._is_too_high(statistics.median(losses))
        self._strikes = 0 if is_sound else self._strikes + 1
        if is_sound:
            self._learn(losses)
        mean = self._sign * math.fsum(losses) / len(losses)
        return Look(mean, is_sound, is_broken=self._strikes >= _STRIKES)

    def _is_too_high(self, median: float) -> bool:
        if self._start is None or not self._measures:
            return False
        progress = self._start - self._lowest
        if progress > _CERTAIN * self._deviation:
            return median > self._lowest + _LOST * progress
        return median > self._start + _ABOVE_START * self._deviation

    def _learn(self, losses: list[float]) -> None:
        median = statistics.median(losses)
        spread = statistics.median(abs(loss - median) for loss in losses)
        deviation = _NORMAL * spread or statistics.pstdev(losses)
        if self._start is not None:
            self._deviation += _SMOOTHING * (deviation - self._deviation)
        elif deviation > 0:
            self._start, self._deviation = median, deviation
        else:
            return
        self._lowest = min(self._lowest, median)

    def state_dict(self) -> dict[str, Any]:
        """Return everything; reading the unread losses is left to whoever loads it."""
        return {
            "unread": [loss.clone() for loss in self._unread],
            "steps": self._steps,
            "start": self._start,
            "lowest": self._lowest,
            "deviation": self._deviation,
            "strikes": self._strikes,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._unread = list(state["unread"])
        self._steps = state["steps"]
        self._start = state["start"]
        self._lowest = state["lowest"]
        self._deviation = state["deviation"]
        self._strikes = state["strikes"]
