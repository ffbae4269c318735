"""Two small nets: a multi-layer perceptron, and one of convolutions for a CPU."""

import math

from torch import Tensor, nn

HIDDEN = 128
WIDTHS = (16, 32, 64)


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
        hidden = HIDDEN // divisor
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
        dropout: float = 0.25,
    ) -> None:
        super().__init__()
        first, second, third = (width // divisor for width in WIDTHS)
        height, width = (side // 4 for side in image_size)
        self.features = nn.Sequential(
            *_convolution(channels, first),
            nn.MaxPool2d(2),
            *_convolution(first, second),
            nn.MaxPool2d(2),
            *_convolution(second, third),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(dropout), nn.Linear(third * height * width, classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class for each image."""
        scores: Tensor = self.classifier(self.features(images))
        return scores


def _convolution(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )
