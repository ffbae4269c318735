"""Tasks on stretches of text, by convolutions: the next character, marks that were left out."""

from __future__ import annotations

import collections
import re

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .task import Task, generator
from .text import Characters


class Dilated(nn.Module):
    """Looks back by some places, twice as far as the one before; its inputs are added."""

    def __init__(self, width: int, distance: int) -> None:
        super().__init__()
        self.distance = distance
        self.convolution = nn.Conv1d(width, width, 2, dilation=distance)
        self.projection = nn.Conv1d(width, width, 1)

    def forward(self, features: Tensor) -> Tensor:
        seen = self.convolution(F.pad(features, (self.distance, 0)))
        return features + self.projection(F.relu(seen))


class LookingBack(nn.Module):
    """Five dilated convolutions: a character is predicted from the 32 before it."""

    def __init__(self, characters: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.blocks = nn.Sequential(*[Dilated(width, 2**layer) for layer in range(5)])
        self.head = nn.Conv1d(width, characters, 1)

    def forward(self, codes: Tensor) -> Tensor:
        features = self.blocks(self.embedding(codes).transpose(1, 2))
        return self.head(features).transpose(1, 2)


class DilatedConvolutions(Characters):
    """Characters by convolutions that look back ever farther."""

    steps = 1200
    batch_size = 8
    window = 48
    test_windows = 1200

    def build(self) -> nn.Module:
        return LookingBack(self.characters, 48)


class Tagger(nn.Module):
    """Vectors of words, and a convolution that sees two words on each side."""

    def __init__(self, words: int, width: int, hidden: int, tags: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(words, width)
        self.convolution = nn.Conv1d(width, hidden, 5, padding=2)
        self.head = nn.Linear(hidden, tags)

    def forward(self, words: Tensor) -> Tensor:
        seen = self.convolution(self.vectors(words).transpose(1, 2))
        return self.head(torch.tanh(seen).transpose(1, 2))


class Punctuation(Task):
    """Which mark follows each of sixteen words, if any; 2,000 words are known."""

    steps = 1500
    batch_size = 16
    words, window = 2000, 16
    marks = " ,.;:?!"

    def load(self) -> None:
        found = re.findall(r"([a-z']+)[ \n]*([,.;:?!]?)", self.sources.read_text().lower())
        frequent = collections.Counter(word for word, _ in found).most_common(self.words - 1)
        codes = {word: code for code, (word, _) in enumerate(frequent, start=1)}
        words = torch.tensor([codes.get(word, 0) for word, _ in found])
        marks = torch.tensor([self.marks.index(mark or " ") for _, mark in found])
        count = len(found) // self.window
        order = torch.randperm(count, generator=generator(96))
        inputs, targets = (
            stream[: count * self.window].view(count, self.window)[order]
            for stream in (words, marks)
        )
        self.inputs, self.test_inputs = inputs[2000:], inputs[:2000]
        self.targets, self.test_targets = targets[2000:], targets[:2000]

    def build(self) -> nn.Module:
        return Tagger(self.words, 32, 64, len(self.marks))

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        words, marks = minibatch
        return F.cross_entropy(network(words).flatten(0, 1), marks.flatten())
