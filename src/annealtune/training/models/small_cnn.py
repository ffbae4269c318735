"""A small convolutional net that trains in minutes on a CPU."""

from torch import Tensor, nn

WIDTHS = (16, 32, 64)


class SmallCNN(nn.Module):
    """Three 3x3 convolutions with BatchNorm, two poolings, a dropout and one linear layer.

    Raises:
        ValueError: For an image below 4x4, or a divisor that leaves a width below one.

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
        if min(image_size) < 4:
            raise ValueError(f"SmallCNN(image_size=...) must be at least 4x4, got {image_size}")
        if not 1 <= divisor <= min(WIDTHS):
            raise ValueError(f"SmallCNN(divisor=...) must be in 1..{min(WIDTHS)}, got {divisor}")
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
