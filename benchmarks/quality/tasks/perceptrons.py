"""Tasks on images that are hard on a rate: a very wide net, a long residual one, tiny batches."""

from __future__ import annotations

from torch import Tensor, nn

from .images import fashion
from .task import Task, perceptron


class FewImages(Task):
    """Fashion-MNIST from few images, as rows of pixels."""

    images: int

    def load(self) -> None:
        images, self.targets = fashion(self.sources, "train", self.images)
        test_images, self.test_targets = fashion(self.sources, "test", 2000)
        self.inputs, self.test_inputs = images.flatten(1), test_images.flatten(1)


class Wide(FewImages):
    """One hidden layer of width 4096."""

    steps = 1000
    batch_size = 16
    images = 1000

    def build(self) -> nn.Module:
        return perceptron(196, 4096, 10)


class ResidualBlock(nn.Module):
    """Two layers, to whose outputs their inputs are added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = perceptron(width, width, width)

    def forward(self, features: Tensor) -> Tensor:
        return features + self.layers(features)


class Residual(FewImages):
    """Twelve blocks of two layers, without normalisation."""

    steps = 1000
    batch_size = 24
    images = 2000

    def build(self) -> nn.Module:
        blocks = [ResidualBlock(128) for _ in range(12)]
        return nn.Sequential(nn.Linear(196, 128), *blocks, nn.Linear(128, 10))


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
