"""From inputs as the data holds them to inputs as a model is given them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Scaling(nn.Module):
    """Computes (input / scale - mean) / std of each channel, or each feature of a table.

    Args:
        mean: Of each, in units of ``input / scale``; empty leaves the inputs as they are.
        std: Standard deviation of each, in the same units.
        scale: The largest pixel value; 1 for numbers.
        ndim: Axes of the inputs, that of the samples included; channels are the second.

    Example:
        >>> Scaling((0.5,), (0.25,), 8.0, ndim=2)(torch.tensor([[8], [0]], dtype=torch.uint8))
        tensor([[ 2.],
                [-2.]])
    """

    factor: Tensor | None
    offset: Tensor | None

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], scale: float, *, ndim: int
    ) -> None:
        super().__init__()
        self.register_buffer("factor", None)
        self.register_buffer("offset", None)
        if mean:
            # One multiplication and one addition.
            center, spread = (
                torch.tensor(v, dtype=torch.float64).view(1, -1, *[1] * (ndim - 2))
                for v in (mean, std)
            )
            self.factor = (1 / (scale * spread)).float()
            self.offset = (-center / spread).float()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return new inputs as ``float32``; tokens, and numbers without a mean, as they are."""
        if self.factor is None or self.offset is None:
            return inputs
        return torch.addcmul(self.offset, inputs.to(torch.float32), self.factor)

    def in_place(self, inputs: Tensor) -> Tensor:
        """Do the same to ``float32`` inputs that nobody else needs."""
        if self.factor is None or self.offset is None:
            return inputs
        return torch.addcmul(self.offset, inputs, self.factor, out=inputs)
