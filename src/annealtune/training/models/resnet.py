"""ResNet for small images, as in the paper's experiments.

A 3x3 stem without max-pool, four stages of 64-128-256-512 channels of which the last three halve
the image, the mean over what is left of it, one linear layer. The initialisation is PyTorch's own.

Reference: He et al., *Deep residual learning for image recognition* (2016), Table 1.
"""

from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (64, 128, 256, 512)


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
    """A ResNet of 18, 34 or 50 layers for images whose sides are at least 8 (three halvings).

    Raises:
        ValueError: For an unknown depth, or a divisor that leaves a width below one.

    Example:
        >>> import torch
        >>> ResNet(18, channels=1, classes=10, divisor=16)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, depth: int = 34, *, channels: int, classes: int, divisor: int = 1) -> None:
        super().__init__()
        if depth not in BLOCKS:
            raise ValueError(f"ResNet(depth=...) must be one of {sorted(BLOCKS)}, got {depth}")
        if not 1 <= divisor <= min(WIDTHS):
            raise ValueError(f"ResNet(divisor=...) must be in 1..{min(WIDTHS)}, got {divisor}")
        block, blocks_per_stage = BLOCKS[depth]
        inputs = WIDTHS[0] // divisor
        expansion = 4 if block is bottleneck else 1
        self.stem = nn.Sequential(_convolution(channels, inputs, 3), nn.ReLU(inplace=True))
        stages = []
        for stage, (width, blocks) in enumerate(zip(WIDTHS, blocks_per_stage, strict=True)):
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
