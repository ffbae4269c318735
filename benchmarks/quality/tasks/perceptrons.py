"""Tasks on images that are hard on a rate: a very wide net, a long residual one, tiny batches."""

from __future__ import annotations

from torch import Tensor, nn

from .images import fashion
from .task import Task, perceptron
from .vision import cifar


class Wide(Task):
    """One hidden layer of width 4096, and 1,000 images."""

    steps = 1000
    batch_size = 16

    def load(self) -> None:
        images, self.targets = fashion(self.sources, "train", 1000)
        test_images, self.test_targets = fashion(self.sources, "test", 2000)
        self.inputs, self.test_inputs = images.flatten(1), test_images.flatten(1)

    def build(self) -> nn.Module:
        return perceptron(196, 4096, 10)


class ResidualBlock(nn.Module):
    """Two layers, to whose outputs their inputs are added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = perceptron(width, width, width)

    def forward(self, features: Tensor) -> Tensor:
        return features + self.layers(features)


class Residual(Task):
    """CIFAR-10 at 8 x 8 pixels by twelve blocks of two layers, without normalisation."""

    steps = 1000
    batch_size = 24

    def load(self) -> None:
        images, self.targets = cifar(self.sources, "train", 10_000, 4)
        test_images, self.test_targets = cifar(self.sources, "test", 2000, 4)
        self.inputs, self.test_inputs = images.flatten(1), test_images.flatten(1)

    def build(self) -> nn.Module:
        blocks = [ResidualBlock(128) for _ in range(12)]
        return nn.Sequential(nn.Linear(192, 128), *blocks, nn.Linear(128, 10))


class BatchesOfFour(Task):
    """A small CNN that sees four images at a time."""

    steps = 3000
    batch_size = 4

    def load(self) -> None:
        self.inputs, self.targets = fashion(self.sources, "train", 10_000)
        self.test_inputs, self.test_targets = fashion(self.sources, "test", 2000)

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * 49, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        )
