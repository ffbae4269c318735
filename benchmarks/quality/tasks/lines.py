"""A task on lines of plays: where in the text they stand, by their words alone."""

from __future__ import annotations

import collections
import re

import torch
from torch import Tensor, nn

from .task import Task, generator


class Bag(nn.Module):
    """The mean of the vectors of a line's words, and a linear layer; word 0 is none."""

    def __init__(self, words: int, width: int, classes: int) -> None:
        super().__init__()
        self.vectors = nn.EmbeddingBag(words, width, mode="mean", padding_idx=0)
        self.head = nn.Linear(width, classes)

    def forward(self, lines: Tensor) -> Tensor:
        return self.head(self.vectors(lines))


class BagOfWords(Task):
    """In which eighth of the text a line stands; lines that name a speaker are left out."""

    steps = 2000
    parts, words, test_lines = 8, 2000, 4000

    def load(self) -> None:
        text = self.sources.read_text().lower()
        spoken = [line for line in text.split("\n") if line and not line.endswith(":")]
        found = [re.findall(r"[a-z']+", line) for line in spoken]
        order = torch.randperm(len(found), generator=generator(82))
        to_train = order[self.test_lines :].tolist()
        counts = collections.Counter(word for place in to_train for word in found[place])
        frequent = counts.most_common(self.words - 1)
        codes = {word: code for code, (word, _) in enumerate(frequent, start=1)}
        # Rare words are left out, as if the line were shorter.
        rows = [torch.tensor([codes[word] for word in line if word in codes]) for line in found]
        lines = nn.utils.rnn.pad_sequence([row.long() for row in rows], batch_first=True)[order]
        parts = order * self.parts // len(order)
        self.inputs, self.test_inputs = lines[self.test_lines :], lines[: self.test_lines]
        self.targets, self.test_targets = parts[self.test_lines :], parts[: self.test_lines]

    def build(self) -> nn.Module:
        return Bag(self.words, 32, self.parts)
