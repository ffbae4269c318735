"""What one training step computes on its minibatch, every forward and backward counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from annealtune.optim import Value
from annealtune.optim.evaluation.objectives import error
from annealtune.training.data.batches import LabeledImages


class CountedMinibatch:
    """A minibatch of one training step, with its forwards.

    Args:
        network: gives one score per class.
        images: to train on.
        held_out: images to judge the step by, where it is judged by others.
        autocast: makes the precision of a forward.
        label_smoothing: of the training loss.
    """

    def __init__(
        self,
        network: Callable[[Tensor], Tensor],
        images: LabeledImages,
        held_out: LabeledImages | None,
        autocast: Callable[[], AbstractContextManager[object]],
        label_smoothing: Value,
    ) -> None:
        self.images = images
        self.held_out = held_out
        self.autocast = autocast
        self.first_loss: float | None = None
        self.forwards = 0
        self.backwards = 0
        self._network = network
        self._label_smoothing = label_smoothing

    def loss(self) -> Tensor:
        """Return the training loss: the mean cross-entropy."""
        return self.parts()[0]

    def error(self) -> Tensor:
        """Return one minus the accuracy."""
        _, scores, labels = self.parts()
        return error(scores, labels)

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the training loss with the scores and labels that it is made of."""
        scores, loss = self._forward(self.images, self._label_smoothing.value)
        if self.first_loss is None:
            self.first_loss = loss.item()
        return loss, scores, self.images.labels

    def judged(self, images: LabeledImages) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss, scores and labels for the accept test alone: labels are not smoothed."""
        scores, loss = self._forward(images, 0.0)
        return loss, scores, images.labels

    @contextmanager
    def counting(self, model: nn.Module) -> Iterator[None]:
        """Count the forwards that somebody else makes."""

        def count(*_: Any) -> None:
            self.forwards += 1

        hook = model.register_forward_pre_hook(count)
        try:
            yield
        finally:
            hook.remove()

    def _forward(self, images: LabeledImages, label_smoothing: float) -> tuple[Tensor, Tensor]:
        self.forwards += 1
        with self.autocast():
            scores = self._network(images.inputs)
            loss = F.cross_entropy(scores, images.labels, label_smoothing=label_smoothing)
        if loss.requires_grad:
            loss.register_hook(self._count_backward)
        return scores, loss

    def _count_backward(self, _: Tensor) -> None:
        self.backwards += 1
