"""What the scripts are trained on: images as numbers from 0 to 1, a text as characters."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.quality.tasks.task import Sources

from .common import Part, batched

# Pieces of the validation part: a look is to be cheap. The test has all of its part.
_LOOKED_AT = 200


class Images:
    """Fashion-MNIST or CIFAR-10: the published training part to train on, a tenth of the rest to
    look at."""

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


class Characters:
    """The characters of a text as numbers: nine tenths to train on, the rest in halves.

    Attributes:
        symbols: how many different ones there are.
        training: those to train on.
    """

    def __init__(self, text: str) -> None:
        alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
        numbers = torch.tensor([alphabet[character] for character in text])
        first, second = int(0.9 * len(text)), int(0.95 * len(text))
        self.symbols = len(alphabet)
        self.training = numbers[:first]
        self._held_out = {"validation": numbers[first:second], "test": numbers[second:]}

    def windows(self, count: int, length: int) -> tuple[Tensor, Tensor]:
        """Draw pieces to train on, and the character after each of theirs."""
        starts = torch.randint(len(self.training) - length, (count, 1))
        places = starts + torch.arange(length)
        return self.training[places], self.training[places + 1]

    def held_out(self, part: Part, length: int) -> tuple[Tensor, Tensor]:
        """Return the pieces of another part, one after the other."""
        numbers = self._held_out[part]
        count = (len(numbers) - 1) // length
        if part == "validation":
            count = min(count, _LOOKED_AT)
        end = count * length
        return numbers[:end].view(count, length), numbers[1 : end + 1].view(count, length)
