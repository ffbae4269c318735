"""A task on many small graphs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .task import Task, generator


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
