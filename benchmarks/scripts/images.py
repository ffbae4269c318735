"""Fashion-MNIST and CIFAR-10 as numbers from 0 to 1: what the scripts on images share."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.quality.tasks.task import Sources

from .common import Part, batched


class Images:
    """The published training part to train on; a tenth of the test part is looked at."""

    def __init__(self, sources: Sources, name: str) -> None:
        dataset = sources.dataset(name)
        self.training = dataset.train_inputs, dataset.train_targets
        both = dataset.test_inputs, dataset.test_targets
        tenth = len(both[0]) // 10
        self._parts = {
            "validation": tuple(t[:tenth] for t in both),
            "test": tuple(t[tenth:] for t in both),
        }

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Draw images to train on, and their labels."""
        images, labels = self.training
        rows = torch.randint(len(images), (count,))
        return images[rows] / 255, labels[rows]

    def held_out(self, part: Part) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the images of another part, and their labels."""
        for images, labels in batched(*self._parts[part], size=500):
            yield images / 255, labels
