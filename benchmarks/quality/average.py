"""The average of SelfTuner, for methods that have none of their own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from torch.optim import Optimizer

from annealtune.optim.average import WeightAverage
from annealtune.optim.guard import EVERY

from .gradients import Gradients


class Average:
    """The mean of the weights of every eighth step, in a window that shrinks as the rate decays.

    Args:
        gradients: whose net is averaged.
        optimizer: of its parameters.
    """

    def __init__(self, gradients: Gradients, optimizer: Optimizer) -> None:
        self._average = WeightAverage("benchmarks.quality", optimizer, gradients.network)
        self._average.add()

    def take(self, step: int, left: float = 1.0) -> None:
        """Take in the weights, if it is time.

        Args:
            step: number of steps made so far.
            left: the share of the rate that its decay has left; with 0, at the end of a decay, the
                average is the last weights.
        """
        if step % EVERY == 0 or left == 0:
            self._average.add(left)

    def swapped_in(self) -> AbstractContextManager[Any]:
        """Give the net the average meanwhile."""
        return self._average.swapped_in()
