"""Loss and accuracy of a model in evaluation mode."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from annealtune.optim.run_state import RandomState
from annealtune.training.task import Task
from annealtune.training.world import World


class Scores(NamedTuple):
    """Loss and accuracy over a set of samples.

    Attributes:
        loss: mean cross-entropy over the samples or tokens, or mean squared error.
        accuracy: share of the samples or tokens whose highest score is the right one; None for
            regression.
        paper_loss: sum of the minibatches' mean losses divided by the number of samples, the scale
            of the paper's Table 1.
    """

    loss: float
    accuracy: float | None
    paper_loss: float

    def named(self, part: str) -> dict[str, float]:
        """Return loss and accuracy, if there is one, under the names that records have.

        Example:
            >>> Scores(0.5, None, 0.1).named("test")
            {'test_loss': 0.5}
        """
        named = {f"{part}_loss": self.loss}
        return named if self.accuracy is None else {**named, f"{part}_accuracy": self.accuracy}


class _Found(NamedTuple):
    """What was found on one minibatch: the sum of its losses, and how many of what there were."""

    loss: float
    targets: int
    samples: int
    correct: int


def rank(accuracy: float | None, loss: float | None) -> tuple[float, float]:
    """Return what is compared to find the best epoch: accuracy first, then the lower loss.

    Without an accuracy the loss alone counts. One that is unknown or not a number is the worst.
    """
    return accuracy or 0.0, -math.inf if loss is None or math.isnan(loss) else -loss


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    autocast: Callable[[], AbstractContextManager[object]],
    task: Task,
    before_batch: Callable[[], None] = lambda: None,
    world: World | None = None,
) -> Scores:
    """Score a model; its mode and torch's random numbers are as before afterwards.

    What ``before_batch``, called before every minibatch, raises ends the evaluation. The processes
    of a world take turns with the minibatches; each returns the scores over all of them.
    """
    training, random_state = model.training, RandomState.capture()
    world = world or World()
    model.eval()
    found: list[_Found] = []
    try:
        for inputs, targets in itertools.islice(batches, world.rank, None, world.size):
            before_batch()
            with autocast():
                outputs = task.arranged(model(inputs))
            total = task.loss(outputs.float(), targets, reduction="sum").item()
            correct = int((outputs.argmax(1) == targets).sum()) if task.has_accuracy else 0
            found.append(_Found(total, targets.numel(), len(targets), correct))
    finally:
        model.train(training)
        random_state.restore()  # a model may draw in evaluation too
    found = world.merge(found)
    loss, batch_means = 0.0, 0.0
    for minibatch in found:
        loss += minibatch.loss
        batch_means += minibatch.loss / minibatch.targets
    count, samples, correct = (
        sum(getattr(minibatch, name) for minibatch in found)
        for name in ("targets", "samples", "correct")
    )
    if count == 0:
        return Scores(math.nan, math.nan if task.has_accuracy else None, math.nan)
    accuracy = correct / count if task.has_accuracy else None
    return Scores(loss / count, accuracy, batch_means / samples)
