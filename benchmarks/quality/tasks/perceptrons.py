"""Tasks on images that are hard on a rate: a very wide net, a long residual one, tiny batches."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from .images import fashion
from .task import Task, perceptron


class Rows(Task):
    """Fashion-MNIST without its shape."""

    def load(self) -> None:
        images, self.targets = fashion(self.sources, "train", 6000)
        test_images, self.test_targets = fashion(self.sources, "test", 2000)
        self.inputs, self.test_inputs = images.flatten(1), test_images.flatten(1)


class Wide(Rows):
    """Two layers of width 1024."""

    steps = 1000
    batch_size = 16

    def build(self) -> nn.Module:
        return perceptron(196, 1024, 1024, 10)


class ResidualBlock(nn.Module):
    """Two layers with the initial weights of He, to whose outputs their inputs are added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        for layer in (self.first, self.second):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, features: Tensor) -> Tensor:
        return features + self.second(F.relu(self.first(features)))


class Residual(Rows):
    """Eight blocks of two layers, without normalisation: what goes through them grows."""

    steps = 1500
    batch_size = 48

    def build(self) -> nn.Module:
        blocks = [ResidualBlock(64) for _ in range(8)]
        return nn.Sequential(nn.Linear(196, 64), *blocks, nn.Linear(64, 10))


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
