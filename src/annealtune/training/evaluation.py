"""Loss and accuracy of a model in evaluation mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    autocast: Callable[[], AbstractContextManager[object]],
    before_batch: Callable[[], None] = lambda: None,
) -> Scores:
    """Score a model; its mode is as before afterwards.

    Args:
        model: gives one score per class.
        batches: minibatches of inputs and labels.
        autocast: makes the precision of the forward.
        before_batch: called before every minibatch; what it raises ends the evaluation.
    """
    training = model.training
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
    if count == 0:
        return Scores(math.nan, math.nan, math.nan)
    return Scores(loss / count, correct / count, batch_means / count)
