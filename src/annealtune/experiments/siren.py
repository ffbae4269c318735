"""A net of sines learns a photograph, pixel by pixel: far from where AdamW's rates usually lie.

Data and model of ``demo-siren.toml``, and an example of both kinds of factory: regression, floats
in and floats out.

Reference:
    Sitzmann et al., Implicit Neural Representations with Periodic Activation Functions, 2020.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

_SIDE = 64  # pixels of the picture that is learnt
_CROP = (slice(100, 356), slice(200, 456))  # a gate and its roof
_FREQUENCY = 30.0  # the paper's omega


def photograph() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return places and shades of a grey picture: three quarters to train on, the rest to test.

    Returns:
        (inputs, targets) of both parts: places in [-1, 1] x [-1, 1], shades in [-1, 1].
    """
    from sklearn.datasets import load_sample_image

    pixels = torch.tensor(load_sample_image("china.jpg"), dtype=torch.float32).mean(2)[_CROP]
    shades = pixels.reshape(_SIDE, 4, _SIDE, 4).mean((1, 3)).reshape(-1, 1) / 127.5 - 1
    line = torch.linspace(-1, 1, _SIDE)
    places = torch.cartesian_prod(line, line)
    order = torch.randperm(len(places), generator=torch.Generator().manual_seed(0))
    train, test = order.split(3 * len(order) // 4)
    return (places[train], shades[train]), (places[test], shades[test])


def net(features: int, outputs: int, width: int = 64, hidden: int = 2) -> nn.Module:
    """Return a SIREN from places to shades."""
    sizes = [features, *[width] * (hidden + 1)]
    layers = [_Sine(*pair, is_first=pair[0] == features) for pair in itertools.pairwise(sizes)]
    last = nn.Linear(width, outputs)
    bound = math.sqrt(6 / width) / _FREQUENCY
    nn.init.uniform_(last.weight, -bound, bound)
    return nn.Sequential(*layers, last)


class _Sine(nn.Module):
    """sin(omega (W x + b)), with the initial weights of the paper."""

    def __init__(self, inputs: int, outputs: int, *, is_first: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        bound = 1 / inputs if is_first else math.sqrt(6 / inputs) / _FREQUENCY
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, inputs: Tensor) -> Tensor:
        sines: Tensor = torch.sin(_FREQUENCY * self.linear(inputs))
        return sines
