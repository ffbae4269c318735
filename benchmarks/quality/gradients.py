"""What a run costs and what comes of it: the same for every method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from .tasks.task import Task

# Minibatches from which the statistics of BatchNorm are computed at averaged weights.
CALIBRATION = 15

Record = dict[str, Any]


class Gradients:
    """The net of a run. Computes its losses and counts what they cost, in gradients.

    Attributes:
        task: what is trained.
        network: the net.
        cost: so far; a forward alone costs a third of a gradient.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.network = task.network()
        self.cost = 0.0

    def loss(self, minibatch: Any) -> Tensor:
        """Return the loss of a minibatch, for its gradient."""
        self.cost += 1
        return self.task.loss(self.network, minibatch)

    def forward(self, minibatch: Any) -> Tensor:
        """Return the loss of a minibatch, without a gradient."""
        self.cost += 1 / 3
        return self.task.loss(self.network, minibatch)

    def closure(self, minibatch: Any) -> Callable[[], Tensor]:
        """Return what computes the loss of a minibatch: the first time for its gradient."""
        is_first = True

        def compute() -> Tensor:
            nonlocal is_first
            was_first, is_first = is_first, False
            return self.loss(minibatch) if was_first else self.forward(minibatch)

        return compute

    def objective(self) -> list[float]:
        """Return what arms are judged by, where the loss does not measure progress."""
        self.cost += 1 / 3
        return self.task.objective(self.network)

    def calibration(self) -> Iterator[Any]:
        """Yield the minibatches after those of the run."""
        steps = self.task.steps
        return (self.task.minibatch(index) for index in range(steps, steps + CALIBRATION))


def outcome(
    gradients: Gradients, rate: float | None, network: nn.Module | None = None, **counts: Any
) -> Record:
    """Return what a run came to, by the weights that its net has now, or those of another net."""
    network = gradients.network if network is None else network
    scores = {part: gradients.task.score(network, part) for part in ("validation", "test")}
    return _record(gradients, scores, rate, **counts)


def broken(gradients: Gradients, rate: float | None, **counts: Any) -> Record:
    """Return the record of a run whose loss has ceased to be finite."""
    return _record(gradients, {"validation": math.nan, "test": math.nan}, rate, **counts)


def _record(
    gradients: Gradients, scores: dict[str, float], rate: float | None, **counts: Any
) -> Record:
    finite = {part: score if math.isfinite(score) else None for part, score in scores.items()}
    return {
        **finite,
        "rate": rate,
        "cost": round(gradients.cost, 3),
        "budget": gradients.task.steps,
        "extra_steps": 0,
        **counts,
    }
