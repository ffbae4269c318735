"""VGG with BatchNorm and ResNet for small images, as in the paper's experiments.

The initialisation is PyTorch's own. Every width may be divided by a divisor.

References:
    Simonyan & Zisserman, *Very deep convolutional networks for large-scale image recognition*
    (2015), Table 1, columns A, B, D, E. He et al., *Deep residual learning for image recognition*
    (2016), Table 1.
"""

from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional

VGG_WIDTHS = (64, 128, 256, 512, 512)
RESNET_WIDTHS = (64, 128, 256, 512)
CONVOLUTIONS = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


class VGG(nn.Module):
    """A VGG for images whose sides are at least 32.

    Five stages of 3x3 convolutions, a 2x2 max-pool after each, the mean over what is left of the
    image, then 512 -> 100 -> ReLU -> Dropout -> classes.

    The depth, 11, 13, 16 or 19, is that of the original net, which had three linear layers where
    this one has two. The divisor leaves the hidden linear layer its 100 units: in a narrow net it
    is the only layer that still mixes all features freely.

    Example:
        >>> import torch
        >>> VGG(16, channels=3, classes=10, divisor=8)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    HIDDEN = 100

    def __init__(
        self,
        depth: int = 16,
        *,
        channels: int,
        classes: int,
        divisor: int = 1,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*_stages(depth, channels, divisor))
        self.average = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(VGG_WIDTHS[-1] // divisor, self.HIDDEN),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(self.HIDDEN, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class for each image."""
        scores: Tensor = self.classifier(self.average(self.features(images)))
        return scores


def _stages(depth: int, channels: int, divisor: int) -> Iterator[nn.Module]:
    for full_width, convolutions in zip(VGG_WIDTHS, CONVOLUTIONS[depth], strict=True):
        width = full_width // divisor
        for _ in range(convolutions):
            yield nn.Conv2d(channels, width, 3, padding=1)
            yield nn.BatchNorm2d(width)
            yield nn.ReLU(inplace=True)
            channels = width
        yield nn.MaxPool2d(2)


class ResidualBlock(nn.Module):
    """``relu(residual(x) + shortcut(x))``; the latter is a 1x1 convolution where shapes change."""

    def __init__(self, residual: nn.Module, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = residual
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = _convolution(inputs, outputs, 1, stride)

    def forward(self, features: Tensor) -> Tensor:
        """Return the features after this block."""
        total: Tensor = self.residual(features) + self.shortcut(features)
        return functional.relu(total, inplace=True)


def basic(inputs: int, width: int, stride: int) -> ResidualBlock:
    """Return a block of two 3x3 convolutions (ResNet18 and ResNet34)."""
    residual = nn.Sequential(
        _convolution(inputs, width, 3, stride),
        nn.ReLU(inplace=True),
        _convolution(width, width, 3),
    )
    return ResidualBlock(residual, inputs, width, stride)


def bottleneck(inputs: int, width: int, stride: int) -> ResidualBlock:
    """Return a block that computes on a quarter of its output channels (ResNet50)."""
    residual = nn.Sequential(
        _convolution(inputs, width, 1),
        nn.ReLU(inplace=True),
        _convolution(width, width, 3, stride),
        nn.ReLU(inplace=True),
        _convolution(width, 4 * width, 1),
    )
    return ResidualBlock(residual, inputs, 4 * width, stride)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


BLOCKS = {
    18: (basic, (2, 2, 2, 2)),
    34: (basic, (3, 4, 6, 3)),
    50: (bottleneck, (3, 4, 6, 3)),
}


class ResNet(nn.Module):
    """A ResNet of 18, 34 or 50 layers for images whose sides are at least 8.

    A 3x3 stem without max-pool, four stages of which the last three halve the image, the mean over
    what is left of it, one linear layer.

    Example:
        >>> import torch
        >>> ResNet(18, channels=1, classes=10, divisor=16)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, depth: int = 34, *, channels: int, classes: int, divisor: int = 1) -> None:
        super().__init__()
        block, blocks_per_stage = BLOCKS[depth]
        inputs = RESNET_WIDTHS[0] // divisor
        expansion = 4 if block is bottleneck else 1
        self.stem = nn.Sequential(_convolution(channels, inputs, 3), nn.ReLU(inplace=True))
        stages = []
        for stage, (width, blocks) in enumerate(zip(RESNET_WIDTHS, blocks_per_stage, strict=True)):
            layers = []
            for position in range(blocks):
                stride = 2 if stage > 0 and position == 0 else 1
                layers.append(block(inputs, width // divisor, stride))
                inputs = expansion * (width // divisor)
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class for each image."""
        scores: Tensor = self.classifier(self.stages(self.stem(images)))
        return scores
