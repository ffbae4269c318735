"""Tasks in which a net is a function of a place: the Poisson equation, a photograph."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .task import SPARE, Part, Task, generator, perceptron


class Poisson(Task):
    """A net that solves the Poisson equation; tested by its relative L2 error.

    On the unit square, zero at its edge; the solution is known: two products of sines.
    """

    steps = 1200
    waves = ((1, 1, 1.0), (3, 2, 0.3))

    def load(self) -> None:
        self.test_inputs = torch.rand(2000, 2, generator=generator(51))
        self.test_targets = sum(amount * value for _, amount, value in self.terms(self.test_inputs))

    def terms(self, places: Tensor) -> list[tuple[float, float, Tensor]]:
        """Return of each product minus its Laplace factor, its amount, its values."""
        x, y = (math.pi * places).split(1, dim=1)
        return [
            (math.pi**2 * (across**2 + up**2), amount, torch.sin(across * x) * torch.sin(up * y))
            for across, up, amount in self.waves
        ]

    @functools.cached_property
    def points(self) -> Tensor:
        """Points of every minibatch."""
        shape = (self.steps + SPARE, self.batch_size, 2)
        return torch.rand(shape, generator=generator(2000 + self.seed))

    def rows(self) -> int:
        return 50 * self.batch_size

    def minibatch(self, index: int) -> Tensor:
        self.begin_noise(index)
        return self.points[index]

    def build(self) -> nn.Module:
        return perceptron(2, 40, 40, 1, activation=nn.Tanh)

    def loss(self, network: nn.Module, minibatch: Tensor) -> Tensor:
        points = minibatch.clone().requires_grad_()
        (slopes,) = torch.autograd.grad(network(points).sum(), points, create_graph=True)
        bends = [
            torch.autograd.grad(slopes[:, axis].sum(), points, create_graph=True)[0][:, axis]
            for axis in (0, 1)
        ]
        load = sum(factor * amount * value for factor, amount, value in self.terms(minibatch))
        residual = (bends[0] + bends[1] + load[:, 0]).square().mean()
        along, side = minibatch.unbind(1)
        across, up = torch.stack([along, side.round()], 1), torch.stack([side.round(), along], 1)
        return residual + 100 * network(torch.cat([across, up])).square().mean()

    @torch.no_grad()
    def score(self, network: nn.Module, part: Part) -> float:
        inputs, targets = self.held_out(part)
        error = (network(inputs) - targets).square().mean()
        return float((error / targets.square().mean()).sqrt())


class FourierNet(nn.Module):
    """Random sines of a place, then a perceptron."""

    def __init__(self, waves: int, spread: float, width: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("waves", spread * torch.randn(2, waves))
        self.layers = perceptron(2 * waves, width, width, outputs)

    def forward(self, places: Tensor) -> Tensor:
        angles = places @ self.waves
        return self.layers(torch.cat([angles.sin(), angles.cos()], 1))


class FourierFeatures(Task):
    """A net on random Fourier features learns a photograph, tested on pixels left out."""

    steps = 1500
    batch_size = 256

    def load(self) -> None:
        from sklearn.datasets import load_sample_image

        image = torch.tensor(load_sample_image("china.jpg")).permute(2, 0, 1).float()
        small = F.avg_pool2d(image[:, :, 100:527], 8) / 127.5 - 1
        height, width = small.shape[1:]
        lines = torch.linspace(-1, 1, height), torch.linspace(-1, 1, width)
        places = torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).reshape(-1, 2)
        values = small.flatten(1).T.contiguous()
        order = torch.randperm(len(places), generator=generator(52))
        self.inputs, self.test_inputs = places[order[:1800]], places[order[1800:]]
        self.targets, self.test_targets = values[order[:1800]], values[order[1800:]]

    def build(self) -> nn.Module:
        return FourierNet(48, 5.0, 48, 3)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = minibatch
        return F.mse_loss(network(inputs), targets)
