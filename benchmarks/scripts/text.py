"""A text as characters: the first nine tenths to train on, the rest in halves."""

from __future__ import annotations

import torch
from torch import Tensor

from .common import Part

# Pieces of the validation part: a look is to be cheap. The test has all of its part.
_LOOKED_AT = 200


class Characters:
    """The characters of a text as numbers.

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
