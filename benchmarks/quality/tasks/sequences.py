"""Tasks on sequences: sums that are to be remembered, words and those around them."""

from __future__ import annotations

import collections
import re

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .noise import fixed_noise
from .task import Part, Task, generator


class Memory(nn.Module):
    """One LSTM, and a number from where it ends."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.memory = nn.LSTM(inputs, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, sequences: Tensor) -> Tensor:
        features, _ = self.memory(sequences)
        return self.head(features[:, -1])[:, 0]


class AddingProblem(Task):
    """The sum of the two numbers of twenty that are marked, with a little noise."""

    steps = 1200
    batch_size = 32
    length = 20

    def load(self) -> None:
        source = generator(41)
        numbers = torch.rand(6000, self.length, generator=source)
        marked = torch.rand(6000, self.length, generator=source).topk(2).indices
        marks = torch.zeros(6000, self.length).scatter(1, marked, 1.0)
        noise = 0.1 * torch.randn(6000, generator=source)
        sequences, sums = torch.stack([numbers, marks], 2), (numbers * marks).sum(1) + noise
        self.inputs, self.test_inputs = sequences[:4000], sequences[4000:]
        self.targets, self.test_targets = sums[:4000], sums[4000:]

    def build(self) -> nn.Module:
        return Memory(2, 32)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        sequences, sums = minibatch
        return F.mse_loss(network(sequences), sums)


class WordVectors(nn.Module):
    """Two vectors for each word, as in word2vec: for when it stands in the middle, and around."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.middles = nn.Embedding(words, width)
        self.around = nn.Embedding(words, width)
        nn.init.uniform_(self.middles.weight, -0.5 / width, 0.5 / width)
        nn.init.zeros_(self.around.weight)

    def forward(self, middles: Tensor, others: Tensor) -> Tensor:
        """Return how well each of several other words fits a word in the middle."""
        return (self.around(others) @ self.middles(middles)[..., None])[..., 0]


class SkipGram(Task):
    """Word vectors from neighbours, which are to be told from five words drawn by frequency."""

    steps = 2000
    batch_size = 256
    words, negatives = 1000, 5

    def load(self) -> None:
        found = re.findall(r"[a-z']+", self.sources.read_text().lower())[:150_000]
        frequent = collections.Counter(found).most_common(self.words)
        codes = {word: code for code, (word, _) in enumerate(frequent)}
        stream = torch.tensor([codes[word] for word in found if word in codes])
        shares = torch.tensor([float(count) for _, count in frequent]) ** 0.75
        repeats = (shares / shares.sum() * 50_000).ceil().long()
        self.bag = torch.arange(self.words).repeat_interleave(repeats)
        last = len(stream) * 9 // 10
        self.inputs, self.targets = self.pairs(stream[:last])
        middles, around = self.pairs(stream[last:])
        order = torch.randperm(len(middles), generator=generator(42))[:6000]
        self.test_inputs, self.test_targets = middles[order], around[order]

    def pairs(self, stream: Tensor) -> tuple[Tensor, Tensor]:
        """Return words with those one or two places off, on both sides."""
        pairs = [(stream[:-distance], stream[distance:]) for distance in (1, 2)]
        pairs += [(after, before) for before, after in pairs]
        middles, around = zip(*pairs, strict=True)
        return torch.cat(middles), torch.cat(around)

    def build(self) -> nn.Module:
        return WordVectors(self.words, 24)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        middles, around = minibatch
        drawn = self.bag[torch.randint(len(self.bag), (len(middles), self.negatives))]
        others = torch.cat([around[:, None], drawn], 1)
        fits = network(middles, others)
        return F.softplus(-fits[:, 0]).mean() + F.softplus(fits[:, 1:]).sum(1).mean()

    @torch.no_grad()
    def score(self, network: nn.Module, part: Part) -> float:
        with fixed_noise(43):
            return float(self.loss(network, self.held_out(part)))
