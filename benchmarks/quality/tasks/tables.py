"""Tasks on tables and graphs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .task import Task, generator, perceptron


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


class MessagePassing(nn.Module):
    """Two rounds of messages along bonds; atoms are added up in the end."""

    def __init__(self, kinds: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(kinds, width)
        self.messages = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.updates = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(2)])
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, molecules: Tensor) -> Tensor:
        """Return a number for each; after a row of bonds come the kinds of atoms."""
        count = molecules.shape[1]
        bonds, kinds = molecules[:, :, :count], molecules[:, :, count:]
        atoms = F.relu(self.embedding(kinds))
        for message, update in zip(self.messages, self.updates, strict=True):
            heard = bonds @ F.relu(message(atoms))
            atoms = F.relu(update(torch.cat([atoms, heard], 2)))
        return self.head(atoms.sum(1))[:, 0]


class Molecules(Task):
    """The energy of random molecules of twelve atoms of four kinds: bonds, and pairs of bonds."""

    steps = 1500
    batch_size = 32
    atoms, kinds, count = 12, 4, 5000

    def load(self) -> None:
        source = generator(71)
        shape = (self.count, self.atoms, self.atoms)
        bonds = (torch.rand(shape, generator=source) < 0.2).float().triu(1)
        bonds = bonds + bonds.transpose(1, 2)
        drawn = torch.randint(self.kinds, (self.count, self.atoms), generator=source)
        kinds = F.one_hot(drawn, self.kinds).float()
        energies = torch.randn(self.kinds, self.kinds, generator=source)
        strained = torch.randn(self.kinds, generator=source)
        of_bonds = (bonds @ kinds * (kinds @ (energies + energies.T))).sum((1, 2))
        degrees = bonds.sum(2)
        of_angles = (degrees * (degrees - 1) * (kinds @ strained)).sum(1)
        values = of_bonds / of_bonds.std() + of_angles / of_angles.std()
        noise = 0.2 * torch.randn(self.count, generator=source)
        targets = (values - values.mean()) / values.std() + noise
        inputs = torch.cat([bonds, kinds], 2)
        self.inputs, self.test_inputs = inputs[:3000], inputs[3000:]
        self.targets, self.test_targets = targets[:3000], targets[3000:]

    def build(self) -> nn.Module:
        return MessagePassing(self.kinds, 32)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        molecules, energies = minibatch
        return F.mse_loss(network(molecules), energies)
