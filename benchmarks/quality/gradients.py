"""What a run costs and what comes of it: the same for every method."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from .tasks.task import Task

# Minibatches from which the statistics of BatchNorm are computed at averaged weights.
CALIBRATION = 15

# Looks at the validation score in a run; the weights at the best one are its output.
LOOKS = 20

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


class Looks:
    """The output rule, the same for every method: of 20 looks at validation the best counts.

    What a look costs is not counted, for any method.

    Args:
        gradients: whose net is looked at.
        steps: of the run, at even parts of which it is looked at.
    """

    def __init__(self, gradients: Gradients, steps: int) -> None:
        self._gradients = gradients
        self._marks = {round(steps * (n + 1) / LOOKS) for n in range(LOOKS)}
        self._found: list[dict[str, Any]] = []

    def look(
        self,
        step: int,
        given: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
        network: nn.Module | None = None,
    ) -> None:
        """Score the net after a step, if it is time.

        Args:
            step: number of steps made so far.
            given: gives the net the weights to be scored meanwhile; by default its last ones.
            network: scored instead of the net that is trained.
        """
        if step not in self._marks:
            return
        network = self._gradients.network if network is None else network
        task = self._gradients.task
        with given():
            scores = {part: task.score(network, part) for part in ("validation", "test")}
        self._found.append({**scores, "look": step})

    def outcome(self, rate: float | None, **counts: Any) -> Record:
        """Return what the run came to.

        That is the score of the best look (None if there is none, for all were broken), and of the
        last one, at the end of the run, which a run that broke has not.

        Args:
            rate: the rate that was used or found.
            counts: further numbers to record.
        """
        finite = [look for look in self._found if math.isfinite(look["validation"])]
        nothing = {"validation": None, "test": None, "look": None}
        best = min(finite, key=lambda look: look["validation"], default=nothing)
        ended = self._found and self._found[-1]["look"] == max(self._marks)
        final = self._found[-1] if ended else {}
        return {
            **best,
            "final_validation": _finite(final.get("validation")),
            "final_test": _finite(final.get("test")),
            "rate": None if rate is None or not math.isfinite(rate) else float(rate),
            "cost": round(self._gradients.cost, 3),
            "budget": self._gradients.task.steps,
            "extra_steps": 0,
            **counts,
        }


def _finite(score: float | None) -> float | None:
    return None if score is None or not math.isfinite(score) else score
