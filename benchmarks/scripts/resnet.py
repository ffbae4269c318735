"""A small residual net on CIFAR-10, images halved to 16 x 16 pixels so that a run takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR

from .common import Part, Script, Tuned
from .data import Images

_MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
_DEVIATION = torch.tensor([0.247, 0.243, 0.261]).view(3, 1, 1)
_PADDING = 2


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm_1 = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm_2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        inside = F.relu(self.norm_1(self.first(x)))
        return F.relu(self.norm_2(self.second(inside)) + self.shortcut(x))


def resnet8(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Block(width, width, 1),
        Block(width, 2 * width, 2),
        Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, 10),
    )


class ResNet(Script):
    steps = 600
    batch_size = 128

    def load(self) -> None:
        self.images = Images(self.sources, "cifar10")

    def model(self) -> nn.Module:
        return resnet8(width=8)

    def minibatch(self) -> tuple[Tensor, Tensor]:
        images, labels = self.images.draw(self.batch_size)
        return _augmented(_halved(images)), labels

    def held_out(self, part: Part) -> Iterator[tuple[Tensor, ...]]:
        return ((_halved(images), labels) for images, labels in self.images.held_out(part))

    def hand_tuned(self, model: nn.Module) -> Tuned:
        optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        return optimizer, CosineAnnealingLR(optimizer, self.steps)


def _halved(images: Tensor) -> Tensor:
    return (F.avg_pool2d(images, 2) - _MEAN) / _DEVIATION


def _augmented(images: Tensor) -> Tensor:
    """Flip and shift every image at random."""
    count, _, height, width = images.shape
    padded = F.pad(images, (_PADDING,) * 4)
    down, right = torch.randint(2 * _PADDING + 1, (2, count, 1))
    rows, columns = down + torch.arange(height), right + torch.arange(width)
    flipped = torch.rand(count, 1) < 0.5
    columns = torch.where(flipped, columns.flip(1), columns)
    image = torch.arange(count).view(-1, 1, 1)
    return padded[image, :, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)
