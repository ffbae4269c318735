"""A multi-layer perceptron: enough for the 8x8 digits, and for tables."""

import math

from torch import Tensor, nn

HIDDEN = 128


class MLP(nn.Module):
    """The inputs in a row, two hidden layers of 128 with ReLU, one output a class or target.

    Args:
        input_shape: Of one sample.
        output_shape: Of what it gives for one sample.
        divisor: Of the width of the hidden layers.

    Raises:
        ValueError: For a divisor that leaves a width below one.

    Example:
        >>> import torch
        >>> MLP(input_shape=(1, 8, 8), output_shape=(10,))(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, *, input_shape: tuple[int, ...], output_shape: tuple[int, ...], divisor: int = 1
    ) -> None:
        super().__init__()
        if not 1 <= divisor <= HIDDEN:
            raise ValueError(f"MLP(divisor=...) must be in 1..{HIDDEN}, got {divisor}")
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
