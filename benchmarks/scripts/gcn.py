"""A graph convolutional net, in the style of pygcn, on a made graph that resembles Cora.

Papers of seven subjects cite each other, four times out of five within their subject; each is known
by a few words. The subjects of 20 papers each are given.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam

from benchmarks.quality.tasks.task import generator

from .common import Part, Script, Tuned

_CLASSES = 7
_LABELLED = 20  # of each class
_WORDS = 500


class GraphNet(nn.Module):
    def __init__(self, adjacency: Tensor, words: Tensor, hidden: int = 16) -> None:
        super().__init__()
        self.register_buffer("adjacency", adjacency, persistent=False)
        self.register_buffer("words", words, persistent=False)
        self.first = nn.Linear(_WORDS, hidden)
        self.second = nn.Linear(hidden, _CLASSES)
        for layer in (self.first, self.second):
            nn.init.uniform_(layer.weight, -(layer.out_features**-0.5), layer.out_features**-0.5)

    def forward(self, nodes: Tensor) -> Tensor:
        hidden = F.relu(self.adjacency @ self.first(self.words))
        hidden = F.dropout(hidden, 0.5, self.training)
        return (self.adjacency @ self.second(hidden))[nodes]


class GCN(Script):
    steps = 200
    nodes = 2000

    def load(self) -> None:
        source = generator(0)
        self.subjects = torch.arange(self.nodes) % _CLASSES
        self.adjacency = _adjacency(self.subjects, source)
        self.words = _words(self.subjects, source)
        order = torch.arange(self.nodes)
        labelled = _CLASSES * _LABELLED
        self.training = order[:labelled]
        self.parts = {
            "validation": order[labelled : labelled + self.nodes // 4],
            "test": order[labelled + self.nodes // 4 :],
        }

    def model(self) -> nn.Module:
        return GraphNet(self.adjacency, self.words)

    def minibatch(self) -> tuple[Tensor, Tensor]:
        return self.training, self.subjects[self.training]

    def held_out(self, part: Part) -> Iterator[tuple[Tensor, ...]]:
        yield self.parts[part], self.subjects[self.parts[part]]

    def hand_tuned(self, model: nn.Module) -> Tuned:
        return Adam(model.parameters(), lr=0.01, weight_decay=5e-4), None


def _adjacency(subjects: Tensor, source: torch.Generator) -> Tensor:
    """Return who cites whom, about four links each, normalised by the number of links."""
    count = len(subjects)
    same = subjects.unsqueeze(1) == subjects
    chance = torch.where(same, 0.8 * _CLASSES, 0.2 * _CLASSES / (_CLASSES - 1)) * 4 / count
    links = (torch.rand(count, count, generator=source) < chance).float().triu(1)
    links = links + links.T + torch.eye(count)
    scale = links.sum(1).rsqrt()
    return links * scale * scale.unsqueeze(1)


def _words(subjects: Tensor, source: torch.Generator) -> Tensor:
    """Return about 18 words of each paper, four of them from a vocabulary of its subject."""
    count = len(subjects)
    special = torch.rand(_CLASSES, _WORDS, generator=source) < 1 / _CLASSES
    chance = torch.where(special[subjects], 4 * _CLASSES, 0) / _WORDS + 14 / _WORDS
    present = (torch.rand(count, _WORDS, generator=source) < chance).float()
    return present / present.sum(1, keepdim=True).clamp(min=1)
