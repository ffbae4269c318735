"""Tasks on tables and graphs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .task import Task, generator


class TwoEmbeddings(nn.Module):
    """Scalar products of the vectors of rows and columns."""

    def __init__(self, rows: int, columns: int, width: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(rows, width)
        self.columns = nn.Embedding(columns, width)
        nn.init.normal_(self.rows.weight, std=0.1)
        nn.init.normal_(self.columns.weight, std=0.1)

    def forward(self, places: Tensor) -> Tensor:
        return (self.rows(places[:, 0]) * self.columns(places[:, 1])).sum(1)


class Factorisation(Task):
    """Fill in a noisy matrix of rank six by one of rank eight."""

    steps = 2000
    batch_size = 256
    height, width = 200, 150

    def load(self) -> None:
        source = generator(6)
        left = torch.randn(self.height, 6, generator=source)
        right = torch.randn(self.width, 6, generator=source)
        noise = 0.5 * torch.randn(self.height, self.width, generator=source)
        order = torch.randperm(self.height * self.width, generator=source)
        places = torch.stack([order // self.width, order % self.width], 1)
        values = (left @ right.T + noise).flatten()[order]
        self.inputs, self.test_inputs = places[:12_000], places[12_000:17_000]
        self.targets, self.test_targets = values[:12_000], values[12_000:17_000]

    def build(self) -> nn.Module:
        return TwoEmbeddings(self.height, self.width, 8)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        places, values = minibatch
        return F.mse_loss(network(places), values)


class GraphNet(nn.Module):
    """Two graph convolutions with dropout."""

    def __init__(self, neighbors: Tensor, features: Tensor, classes: int) -> None:
        super().__init__()
        self.neighbors = neighbors
        self.features = features
        self.hidden = nn.Linear(features.shape[1], 32)
        self.head = nn.Linear(32, classes)

    def forward(self, nodes: Tensor) -> Tensor:
        features = F.dropout(self.features, 0.5, self.training)
        hidden = self.neighbors @ F.relu(self.hidden(self.neighbors @ features))
        return self.head(F.dropout(hidden, 0.5, self.training))[nodes]


class Graph(Task):
    """Classes of the nodes of a random graph from 70 labels; every minibatch is all of them."""

    steps = 1000
    nodes, classes, labelled = 350, 7, 70

    def load(self) -> None:
        source = generator(9)
        labels = torch.arange(self.nodes) % self.classes
        likely = torch.where(labels[:, None] == labels, 0.05, 0.008)
        drawn = torch.rand(self.nodes, self.nodes, generator=source) < likely
        edges = drawn.float().triu(1)
        edges = edges + edges.T + torch.eye(self.nodes)
        scale = edges.sum(1).rsqrt()
        self.neighbors = scale[:, None] * edges * scale
        centres = torch.randn(self.classes, 64, generator=source)
        features = 0.45 * centres[labels] + torch.randn(self.nodes, 64, generator=source)
        self.features = features / features.norm(dim=1, keepdim=True) * 3
        numbers = torch.arange(self.nodes)
        self.inputs, self.test_inputs = numbers[: self.labelled], numbers[self.labelled :]
        self.targets, self.test_targets = labels[: self.labelled], labels[self.labelled :]

    def minibatch(self, index: int) -> tuple[Tensor, Tensor]:
        self.begin_noise(index)
        return self.inputs, self.targets

    def build(self) -> nn.Module:
        return GraphNet(self.neighbors, self.features, self.classes)


class LogisticRegression(Task):
    """Two classes, columns of very different scale, weights that start at zero."""

    steps = 1000
    batch_size = 32

    def load(self) -> None:
        from sklearn.datasets import make_classification

        table, labels = make_classification(
            3000,
            40,
            n_informative=12,
            n_redundant=8,
            class_sep=1.2,
            flip_y=0.03,
            random_state=3,
        )
        scaled = (table - table.mean(0)) / table.std(0) * np.logspace(-1, 0, 40)
        inputs, targets = torch.tensor(scaled).float(), torch.tensor(labels)
        self.inputs, self.test_inputs = inputs[:1500], inputs[1500:]
        self.targets, self.test_targets = targets[:1500], targets[1500:]

    def build(self) -> nn.Module:
        network = nn.Linear(40, 2)
        nn.init.zeros_(network.weight)
        nn.init.zeros_(network.bias)
        return network
