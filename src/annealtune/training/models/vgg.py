"""VGG with BatchNorm for small images, as in the paper's experiments.

Five stages of 3x3 convolutions, a 2x2 max-pool after each, the mean over what is left of the image,
then 512 -> 100 -> ReLU -> Dropout -> classes. The initialisation is PyTorch's own.

Reference: Simonyan & Zisserman, *Very deep convolutional networks for large-scale image
recognition* (2015), Table 1, columns A, B, D, E.
"""

from collections.abc import Iterator

from torch import Tensor, nn

WIDTHS = (64, 128, 256, 512, 512)
CONVOLUTIONS = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


class VGG(nn.Module):
    """A VGG for images whose sides are at least 32 (five poolings).

    The depth, 11, 13, 16 or 19, is that of the original net, which had three linear layers where
    this one has two. The divisor leaves the hidden linear layer its 100 units: in a narrow net it
    is the only layer that still mixes all features freely.

    Raises:
        ValueError: For an unknown depth, or a divisor that leaves a width below one.

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
        if depth not in CONVOLUTIONS:
            raise ValueError(f"VGG(depth=...) must be one of {sorted(CONVOLUTIONS)}, got {depth}")
        if not 1 <= divisor <= min(WIDTHS):
            raise ValueError(f"VGG(divisor=...) must be in 1..{min(WIDTHS)}, got {divisor}")
        self.features = nn.Sequential(*_stages(depth, channels, divisor))
        self.average = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(WIDTHS[-1] // divisor, self.HIDDEN),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(self.HIDDEN, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class for each image."""
        scores: Tensor = self.classifier(self.average(self.features(images)))
        return scores


def _stages(depth: int, channels: int, divisor: int) -> Iterator[nn.Module]:
    for full_width, convolutions in zip(WIDTHS, CONVOLUTIONS[depth], strict=True):
        width = full_width // divisor
        for _ in range(convolutions):
            yield nn.Conv2d(channels, width, 3, padding=1)
            yield nn.BatchNorm2d(width)
            yield nn.ReLU(inplace=True)
            channels = width
        yield nn.MaxPool2d(2)
