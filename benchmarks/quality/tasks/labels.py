"""Tasks on the pixels of Fashion-MNIST: labels that are wrong, a linear net."""

from __future__ import annotations

import torch
from torch import nn

from .images import fashion
from .task import Task, generator, perceptron


class Pixels(Task):
    """Fashion-MNIST as rows of 196 pixels."""

    images: int

    def load(self) -> None:
        images, self.targets = fashion(self.sources, "train", self.images)
        test_images, self.test_targets = fashion(self.sources, "test", 2000)
        self.inputs, self.test_inputs = images.flatten(1), test_images.flatten(1)


class WrongLabels(Pixels):
    """Three in ten labels to train on are wrong, those to test on are right."""

    steps = 2000
    images = 6000

    def load(self) -> None:
        super().load()
        source = generator(84)
        is_wrong = torch.rand(self.images, generator=source) < 0.3
        others = self.targets + torch.randint(1, 10, (self.images,), generator=source)
        self.targets = torch.where(is_wrong, others % 10, self.targets)

    def build(self) -> nn.Module:
        return perceptron(196, 128, 128, 10)


class SoftmaxRegression(Pixels):
    """One linear layer, zero at the start."""

    steps = 3000
    batch_size = 128
    images = 10_000

    def build(self) -> nn.Module:
        network = nn.Linear(196, 10)
        nn.init.zeros_(network.weight)
        nn.init.zeros_(network.bias)
        return network
