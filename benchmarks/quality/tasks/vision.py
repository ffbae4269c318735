"""Tasks in which nets for images learn from the beginning: convolutions, attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .images import Digits, fashion
from .task import Sources, Task


class FashionConvolutions(Task):
    """Three convolutions with BatchNorm on Fashion-MNIST."""

    steps = 1200
    batch_size = 32

    def load(self) -> None:
        self.inputs, self.targets = fashion(self.sources, "train", 10_000)
        self.test_inputs, self.test_targets = fashion(self.sources, "test", 2000)

    def build(self) -> nn.Module:
        return nn.Sequential(
            *self._layer(1, 12),
            *self._layer(12, 24),
            nn.MaxPool2d(2),
            *self._layer(24, 24),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(24 * 9, 10),
        )

    def _layer(self, inputs: int, outputs: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


class PatchTransformer(nn.Module):
    """Two blocks of attention between the sixteen patches of a digit."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Conv2d(1, width, 2, stride=2)
        self.positions = nn.Parameter(torch.randn(16, width) * 0.02)
        self.blocks = nn.Sequential(
            *[
                nn.TransformerEncoderLayer(
                    width,
                    nhead=4,
                    dim_feedforward=2 * width,
                    dropout=0.1,
                    activation="gelu",
                    batch_first=True,
                    norm_first=True,
                )
                for _ in range(2)
            ]
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.embedding(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(patches + self.positions)).mean(1))


class VisionTransformer(Digits):
    """Digits by a transformer that sees patches of 2 x 2 pixels."""

    steps = 1200
    batch_size = 32

    def load(self) -> None:
        super().load()
        self.inputs, self.test_inputs = (
            rows.view(-1, 1, 8, 8) for rows in (self.inputs, self.test_inputs)
        )

    def build(self) -> nn.Module:
        return PatchTransformer()


def _cifar(sources: Sources, part: str, count: int) -> tuple[Tensor, Tensor]:
    """Return images of CIFAR-10 at half their size and their labels, the first of a part."""
    dataset = sources.dataset("cifar10")
    images = dataset.train_images if part == "train" else dataset.test_images
    labels = dataset.train_labels if part == "train" else dataset.test_labels
    halved = F.avg_pool2d(images[:count].float() / 255, 2)
    return halved.sub(0.47).div(0.23), labels[:count]


class CifarConvolutions(Task):
    """Three convolutions and dropout on CIFAR-10."""

    steps = 1500
    batch_size = 32

    def load(self) -> None:
        self.inputs, self.targets = _cifar(self.sources, "train", 10_000)
        self.test_inputs, self.test_targets = _cifar(self.sources, "test", 2000)

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 48, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(48 * 16, 10),
        )
