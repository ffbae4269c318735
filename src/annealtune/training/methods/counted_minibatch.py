"""What one training step computes on its minibatch, every forward and backward counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import Tensor, nn

from annealtune.optim.evaluation.objectives import error
from annealtune.training.data.batches import Samples
from annealtune.training.task import Task


class CountedMinibatch:
    """A minibatch of one training step, with its forwards.

    Args:
        network: gives what the task asks for.
        task: computes the loss.
        samples: to train on.
        held_out: samples to judge the step by, where it is judged by others.
        autocast: makes the precision of a forward.
        weight: what the mean loss of these samples counts in the mean over all processes.
        mean: over all processes, of the first loss.
    """

    def __init__(
        self,
        network: Callable[[Tensor], Tensor],
        task: Task,
        samples: Samples,
        held_out: Samples | None,
        autocast: Callable[[], AbstractContextManager[object]],
        weight: float = 1.0,
        mean: Callable[[float], float] = float,
    ) -> None:
        self.samples = samples
        self.held_out = held_out
        self.autocast = autocast
        self.first_loss: float | None = None
        self.forwards = 0
        self.backwards = 0
        self._network = network
        self._task = task
        self._weight = weight
        self._mean = mean

    def loss(self) -> Tensor:
        """Return the training loss."""
        return self.parts()[0]

    def error(self) -> Tensor:
        """Return one minus the accuracy."""
        _, outputs, targets = self.parts()
        return error(outputs, targets) * self._weight

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the training loss with the outputs and targets that it is made of."""
        outputs, loss = self.forward(self.samples)
        if self.first_loss is None:
            self.first_loss = self._mean(loss.item())
        return loss, outputs, self.samples.targets

    def judged(self, samples: Samples) -> tuple[Tensor, Tensor, Tensor]:
        """Return loss, outputs and targets for the accept test alone."""
        outputs, loss = self.forward(samples)
        return loss, outputs, samples.targets

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

    def forward(self, samples: Samples) -> tuple[Tensor, Tensor]:
        """Return outputs and loss of some samples."""
        self.forwards += 1
        with self.autocast():
            outputs = self._task.arranged(self._network(samples.inputs))
            loss = self._task.loss(outputs, samples.targets)
            if self._weight != 1 and samples is self.samples:
                loss = loss * self._weight
        if loss.requires_grad:
            loss.register_hook(self._count_backward)
        return outputs, loss

    def _count_backward(self, _: Tensor) -> None:
        self.backwards += 1
