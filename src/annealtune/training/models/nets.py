"""The nets: VGG16 and ResNet34 for small images, as in the paper, and two small ones for a CPU.

The initialisation is PyTorch's own. Every width may be divided by a divisor.

References:
    Simonyan & Zisserman, *Very deep convolutional networks for large-scale image recognition*
    (2015), Table 1, column D. He et al., *Deep residual learning for image recognition* (2016),
    Table 1.
"""

import math
from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional

# Width and number of convolutions, or of blocks, of each stage.
_VGG16_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
_RESNET34_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
_SMALL_WIDTHS = (16, 32, 64)
_MLP_WIDTH = 128


class VGG16(nn.Module):
    """VGG16 with BatchNorm for images whose sides are at least 32.

    Five stages of 3x3 convolutions, a 2x2 max-pool after each, the mean over what is left of the
    image, then 512 -> 100 -> ReLU -> Dropout -> classes. The divisor leaves the hidden linear layer
    its 100 units: in a narrow net it is the only layer that still mixes all features freely.

    Example:
        >>> import torch
        >>> VGG16(channels=3, classes=10, divisor=8)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    HIDDEN = 100

    def __init__(self, *, channels: int, classes: int, divisor: int = 1) -> None:
        super().__init__()
        self.features = nn.Sequential(*self._stages(channels, divisor))
        self.average = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(_VGG16_STAGES[-1][0] // divisor, self.HIDDEN),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(self.HIDDEN, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class for each image."""
        scores: Tensor = self.classifier(self.average(self.features(images)))
        return scores

    @staticmethod
    def _stages(channels: int, divisor: int) -> Iterator[nn.Module]:
        for full_width, convolutions in _VGG16_STAGES:
            width = full_width // divisor
            for _ in range(convolutions):
                yield nn.Conv2d(channels, width, 3, padding=1)
                yield nn.BatchNorm2d(width)
                yield nn.ReLU(inplace=True)
                channels = width
            yield nn.MaxPool2d(2)


class ResidualBlock(nn.Module):
    """``relu(residual(x) + shortcut(x))``: two 3x3 convolutions, and x itself.

    The shortcut is a 1x1 convolution where shapes change.
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _convolution(inputs, width, 3, stride),
            nn.ReLU(inplace=True),
            _convolution(width, width, 3),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != width:
            self.shortcut = _convolution(inputs, width, 1, stride)

    def forward(self, features: Tensor) -> Tensor:
        """Return the features after this block."""
        total: Tensor = self.residual(features) + self.shortcut(features)
        return functional.relu(total, inplace=True)


class ResNet34(nn.Module):
    """ResNet34 for images whose sides are at least 8.

    A 3x3 stem without max-pool, four stages of which the last three halve the image, the mean over
    what is left of it, one linear layer.

    Example:
        >>> import torch
        >>> ResNet34(channels=1, classes=10, divisor=16)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, *, channels: int, classes: int, divisor: int = 1) -> None:
        super().__init__()
        inputs = _RESNET34_STAGES[0][0] // divisor
        self.stem = nn.Sequential(_convolution(channels, inputs, 3), nn.ReLU(inplace=True))
        stages = []
        for stage, (full_width, blocks) in enumerate(_RESNET34_STAGES):
            width = full_width // divisor
            layers = []
            for position in range(blocks):
                stride = 2 if stage > 0 and position == 0 else 1
                layers.append(ResidualBlock(inputs, width, stride))
                inputs = width
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class for each image."""
        scores: Tensor = self.classifier(self.stages(self.stem(images)))
        return scores


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class MLP(nn.Module):
    """The inputs in a row, two hidden layers of 128 with ReLU, one output a class or target.

    Args:
        input_shape: Of one sample.
        output_shape: Of what it gives for one sample.
        divisor: Of the width of the hidden layers.

    Example:
        >>> import torch
        >>> MLP(input_shape=(1, 8, 8), output_shape=(10,))(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, *, input_shape: tuple[int, ...], output_shape: tuple[int, ...], divisor: int = 1
    ) -> None:
        super().__init__()
        hidden = _MLP_WIDTH // divisor
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(input_shape), hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, math.prod(output_shape)),
        )
        if len(output_shape) > 1:
            self.layers.append(nn.Unflatten(1, output_shape))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one score per class, or one number per target, for each sample."""
        outputs: Tensor = self.layers(inputs)
        return outputs


class SmallCNN(nn.Module):
    """Three 3x3 convolutions with BatchNorm, two poolings, a dropout and one linear layer.

    It takes images of 4x4 or more.

    Example:
        >>> import torch
        >>> SmallCNN(channels=1, image_size=(8, 8), classes=10)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        channels: int,
        image_size: tuple[int, int],
        classes: int,
        divisor: int = 1,
    ) -> None:
        super().__init__()
        first, second, third = (width // divisor for width in _SMALL_WIDTHS)
        height, width = (side // 4 for side in image_size)
        self.features = nn.Sequential(
            *_convolution(channels, first, 3),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            *_convolution(first, second, 3),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            *_convolution(second, third, 3),
            nn.ReLU(inplace=True),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.25), nn.Linear(third * height * width, classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class for each image."""
        scores: Tensor = self.classifier(self.features(images))
        return scores
