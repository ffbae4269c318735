"""Loss and accuracy of a model in evaluation mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annealtune.optim.evaluation.random_state import RandomState


class Scores(NamedTuple):
    """Loss and accuracy over a set of images.

    Attributes:
        loss: mean cross-entropy over the images.
        accuracy: share of the images whose highest score is their class.
        paper_loss: sum of the minibatches' mean losses divided by the number of images, the scale
            of the paper's Table 1.
    """

    loss: float
    accuracy: float
    paper_loss: float


def rank(accuracy: float, loss: float | None) -> tuple[float, float]:
    """Return what is compared to find the best epoch: accuracy first, then the lower loss.

    A loss that is unknown or not a number is the worst.
    """
    return accuracy, -math.inf if loss is None or math.isnan(loss) else -loss


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    autocast: Callable[[], AbstractContextManager[object]],
    before_batch: Callable[[], None] = lambda: None,
) -> Scores:
    """Score a model; its mode and torch's random numbers are as before afterwards.

    What ``before_batch``, called before every minibatch, raises ends the evaluation.
    """
    training, random_state = model.training, RandomState.capture()
    model.eval()
    count, correct, loss, batch_means = 0, 0, 0.0, 0.0
    try:
        for inputs, labels in batches:
            before_batch()
            with autocast():
                scores = model(inputs)
            total = F.cross_entropy(scores.float(), labels, reduction="sum").item()
            loss += total
            batch_means += total / len(labels)
            correct += int((scores.argmax(1) == labels).sum())
            count += len(labels)
    finally:
        model.train(training)
        random_state.restore()  # a model may draw in evaluation too
    if count == 0:
        return Scores(math.nan, math.nan, math.nan)
    return Scores(loss / count, correct / count, batch_means / count)
