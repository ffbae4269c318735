"""A task in which a net is a function of a place: whether that is inside of a body."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .functions import Sine
from .task import Task, generator


class Occupancy(Task):
    """A SIREN learns which places are inside of a ring or a ball, from places that are inexact."""

    steps = 1500
    batch_size = 128

    def load(self) -> None:
        source = generator(85)
        places = 2 * torch.rand(6000, 3, generator=source) - 1
        exact = places + 0.05 * torch.randn(6000, 3, generator=source)
        inside = self._is_inside(exact).float()
        self.inputs, self.test_inputs = places[:4000], places[4000:]
        self.targets, self.test_targets = inside[:4000], inside[4000:]

    def _is_inside(self, places: Tensor) -> Tensor:
        """Return whether places are in a ring around the third axis, or in the ball within it."""
        outwards = places[:, :2].norm(dim=1)
        from_ring = torch.hypot(outwards - 0.7, places[:, 2])
        return (from_ring < 0.25) | (places.norm(dim=1) < 0.35)

    def build(self) -> nn.Module:
        return nn.Sequential(
            Sine(3, 64, 10.0, is_first=True),
            Sine(64, 64, 30.0),
            Sine(64, 64, 30.0),
            nn.Linear(64, 1),
        )

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = minibatch
        return F.binary_cross_entropy_with_logits(network(inputs)[:, 0], targets)
