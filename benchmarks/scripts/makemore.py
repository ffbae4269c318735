"""A small transformer that makes up words, in the style of makemore."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer

from .common import Part, Script, Tuned, batched
from .nanogpt import Transformer

_LONGEST = 15
_END = 0  # of a word, and what its first letter follows
_NOTHING = -1  # after the end


class Makemore(Script):
    steps = 1000
    batch_size = 32

    def load(self) -> None:
        found = set(re.findall(r"[a-z]+", self.sources.read_text().lower()))
        words = sorted(word for word in found if len(word) <= _LONGEST)
        random.Random(0).shuffle(words)
        letters = torch.full((len(words), _LONGEST + 2), _NOTHING)
        for row, word in zip(letters, words, strict=True):
            numbers = [ord(letter) - ord("a") + 1 for letter in word]
            row[: len(word) + 2] = torch.tensor([_END, *numbers, _END])
        inputs, targets = letters[:, :-1].clamp(min=0), letters[:, 1:]
        first, second = int(0.85 * len(words)), int(0.9 * len(words))
        self.inputs, self.targets = inputs[:first], targets[:first]
        self.parts = {
            "validation": (inputs[first:second], targets[first:second]),
            "test": (inputs[second:], targets[second:]),
        }

    def model(self) -> nn.Module:
        return Transformer(27, _LONGEST + 1, layers=4, heads=4, width=64, bias=True, tied=False)

    def minibatch(self) -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(self.inputs), (self.batch_size,))
        return self.inputs[rows], self.targets[rows]

    def held_out(self, part: Part) -> Iterator[tuple[Tensor, ...]]:
        return batched(*self.parts[part], size=256)

    def loss(self, model: nn.Module, *minibatch: Tensor) -> Tensor:
        letters, following = minibatch
        scores = model(letters).flatten(0, 1)
        return F.cross_entropy(scores, following.flatten(), ignore_index=_NOTHING)

    def hand_tuned(self, model: nn.Module) -> Tuned:
        return self.adamw(model), None

    def adamw(self, model: nn.Module) -> Optimizer:
        return AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.99), weight_decay=0.01)
