"""A multi-layer perceptron: enough for the 8x8 digits."""

from torch import Tensor, nn

HIDDEN = 128


class MLP(nn.Module):
    """The pixels in a row, two hidden layers of 128 with ReLU, one output a class.

    Raises:
        ValueError: For a divisor that leaves a width below one.

    Example:
        >>> import torch
        >>> MLP(channels=1, image_size=(8, 8), classes=10)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, *, channels: int, image_size: tuple[int, int], classes: int, divisor: int = 1
    ) -> None:
        super().__init__()
        if not 1 <= divisor <= HIDDEN:
            raise ValueError(f"MLP(divisor=...) must be in 1..{HIDDEN}, got {divisor}")
        hidden = HIDDEN // divisor
        height, width = image_size
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels * height * width, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class for each image."""
        scores: Tensor = self.layers(images)
        return scores
