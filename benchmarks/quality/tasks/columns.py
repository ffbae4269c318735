"""Tasks on tables with named or made columns, as they are or standardised."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .task import Task, generator, perceptron


class RawTable(Task):
    """Malignant or benign from thirty measurements in their own units, from 0.001 to 4000."""

    steps = 2000
    batch_size = 32

    def load(self) -> None:
        from sklearn.datasets import load_breast_cancer

        table, labels = load_breast_cancer(return_X_y=True)
        order = np.random.RandomState(0).permutation(len(table))
        inputs, targets = torch.tensor(table[order]).float(), torch.tensor(labels[order])
        self.inputs, self.test_inputs = inputs[:229], inputs[229:]
        self.targets, self.test_targets = targets[:229], targets[229:]

    def build(self) -> nn.Module:
        return perceptron(30, 256, 256, 2)


class Cancer(RawTable):
    """The same table, standardised; perceptron with dropout, labels smoothed."""

    steps = 1200

    def load(self) -> None:
        super().load()
        mean, deviation = self.inputs.mean(0), self.inputs.std(0)
        self.inputs = (self.inputs - mean) / deviation
        self.test_inputs = (self.test_inputs - mean) / deviation

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(30, 32),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(32, 32),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(32, 2),
        )

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = minibatch
        return F.cross_entropy(network(inputs), targets, label_smoothing=0.1)


class Friedman(Task):
    """Friedman's first function of five columns of ten, with noise."""

    steps = 1500

    def load(self) -> None:
        from sklearn.datasets import make_friedman1

        table, values = make_friedman1(2500, noise=1.0, random_state=7)
        inputs, targets = torch.tensor(table).float(), torch.tensor(values).float()
        inputs, targets = 2 * inputs - 1, (targets - targets.mean()) / targets.std()
        self.inputs, self.test_inputs = inputs[:1000], inputs[1000:]
        self.targets, self.test_targets = targets[:1000], targets[1000:]

    def build(self) -> nn.Module:
        return perceptron(10, 64, 64, 1)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = minibatch
        return F.mse_loss(network(inputs)[:, 0], targets)


class Tastes(nn.Module):
    """Biases of users and items, and a perceptron on their vectors."""

    def __init__(self, users: int, items: int, width: int) -> None:
        super().__init__()
        self.users = nn.Embedding(users, width)
        self.items = nn.Embedding(items, width)
        self.user_biases = nn.Embedding(users, 1)
        self.item_biases = nn.Embedding(items, 1)
        self.layers = perceptron(2 * width, 32, 1)
        for embedding in (self.users, self.items):
            nn.init.normal_(embedding.weight, std=0.1)
        for embedding in (self.user_biases, self.item_biases):
            nn.init.zeros_(embedding.weight)

    def forward(self, pairs: Tensor) -> Tensor:
        users, items = pairs.unbind(1)
        vectors = torch.cat([self.users(users), self.items(items)], 1)
        biases = self.user_biases(users) + self.item_biases(items)
        return (self.layers(vectors) + biases)[:, 0]


class Collaborative(Task):
    """Ratings from one to five, in whole numbers, of items by users."""

    steps = 2000
    batch_size = 256
    users, items = 500, 300

    def load(self) -> None:
        source = generator(61)
        kinds = torch.randn(self.users, 3, generator=source)
        traits = torch.randn(self.items, 3, generator=source)
        generous = 0.5 * torch.randn(self.users, 1, generator=source)
        good = 0.6 * torch.randn(self.items, generator=source)
        noise = 0.6 * torch.randn(self.users, self.items, generator=source)
        liking = 3.4 + generous + good + torch.tanh(kinds @ traits.T) + noise
        order = torch.randperm(self.users * self.items, generator=source)[:40_000]
        pairs = torch.stack([order // self.items, order % self.items], 1)
        ratings = liking.flatten()[order].round().clamp(1, 5)
        self.inputs, self.test_inputs = pairs[:36_000], pairs[36_000:]
        self.targets, self.test_targets = ratings[:36_000], ratings[36_000:]

    def build(self) -> nn.Module:
        return Tastes(self.users, self.items, 8)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        pairs, ratings = minibatch
        return F.mse_loss(network(pairs), ratings)
