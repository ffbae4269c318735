"""Tasks in which nets for images learn from the beginning: convolutions, attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .images import fashion
from .task import Sources, Task, perceptron


class FashionConvolutions(Task):
    """Three convolutions with BatchNorm on Fashion-MNIST."""

    steps = 1200
    batch_size = 16

    def load(self) -> None:
        self.inputs, self.targets = fashion(self.sources, "train", 10_000)
        self.test_inputs, self.test_targets = fashion(self.sources, "test", 2000)

    def build(self) -> nn.Module:
        return nn.Sequential(
            *self._layer(1, 16),
            *self._layer(16, 32, stride=2),
            *self._layer(32, 64, stride=2),
            nn.Flatten(),
            nn.Linear(64 * 16, 10),
        )

    def _layer(self, inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


class PatchBlock(nn.Module):
    """A pre-norm block with two heads, in which every patch sees every other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.perceptron_norm = nn.LayerNorm(width)
        self.perceptron = perceptron(width, 2 * width, width, activation=nn.GELU)
        self.dropout = nn.Dropout(0.1)

    def forward(self, features: Tensor) -> Tensor:
        parts = self.attention(self.attention_norm(features)).unflatten(-1, (3, 2, -1))
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(queries, keys, values)
        features = features + self.dropout(self.projection(seen.transpose(1, 2).flatten(2)))
        return features + self.dropout(self.perceptron(self.perceptron_norm(features)))


class PatchTransformer(nn.Module):
    """Two blocks over sixteen patches of 5 x 5 pixels, which overlap."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Conv2d(1, width, 5, stride=3)
        self.positions = nn.Parameter(torch.randn(16, width) * 0.02)
        self.blocks = nn.Sequential(PatchBlock(width), PatchBlock(width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.embedding(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(patches + self.positions)).mean(1))


class VisionTransformer(Task):
    """Fashion-MNIST by a small transformer."""

    steps = 1000
    batch_size = 32

    def load(self) -> None:
        self.inputs, self.targets = fashion(self.sources, "train", 10_000)
        self.test_inputs, self.test_targets = fashion(self.sources, "test", 2000)

    def build(self) -> nn.Module:
        return PatchTransformer()


def cifar(sources: Sources, part: str, count: int, first: int = 0) -> tuple[Tensor, Tensor]:
    """Return images of CIFAR-10 at half their size and their labels, some of a part in order."""
    dataset = sources.dataset("cifar10")
    images = dataset.train_inputs if part == "train" else dataset.test_inputs
    labels = dataset.train_targets if part == "train" else dataset.test_targets
    halved = F.avg_pool2d(images[first : first + count].float() / 255, 2)
    return halved.sub(0.47).div(0.23), labels[first : first + count]


class CifarConvolutions(Task):
    """Three convolutions and dropout on CIFAR-10."""

    steps = 1200
    batch_size = 24

    def load(self) -> None:
        self.inputs, self.targets = cifar(self.sources, "train", 10_000)
        self.test_inputs, self.test_targets = cifar(self.sources, "test", 2000)

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(32 * 16, 10),
        )
