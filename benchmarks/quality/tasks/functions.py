"""Tasks in which a net is a function of place and time: an image, a sound, the heat equation."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .task import SPARE, Part, Task, generator, perceptron


class Sine(nn.Module):
    """A layer of a SIREN, with its initial weights.

    Args:
        inputs, outputs: widths.
        frequency: factor within the sine.
        is_first: whether the inputs are coordinates.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        frequency: float,
        *,
        is_first: bool = False,
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.frequency = frequency
        bound = 1 / inputs if is_first else math.sqrt(6 / inputs) / frequency
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.sin(self.frequency * self.linear(inputs))


class SirenImage(Task):
    """A SIREN learns 700 pixels of a CIFAR-10 image and is tested on the others."""

    batch_size = 256

    def load(self) -> None:
        image = self.sources.dataset("cifar10").test_inputs[7].float() / 127.5 - 1
        line = torch.linspace(-1, 1, 32)
        places = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
        self.divide(places, image.reshape(3, 1024).T.contiguous(), 700)

    def divide(self, places: Tensor, values: Tensor, count: int) -> None:
        order = torch.randperm(len(places), generator=generator(4))
        self.inputs, self.test_inputs = places[order[:count]], places[order[count:]]
        self.targets, self.test_targets = values[order[:count]], values[order[count:]]

    def build(self) -> nn.Module:
        return nn.Sequential(
            Sine(2, 64, 12.0, is_first=True),
            Sine(64, 64, 30.0),
            Sine(64, 64, 30.0),
            nn.Linear(64, 3),
        )

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = minibatch
        return F.mse_loss(network(inputs), targets)


class SirenSound(SirenImage):
    """A SIREN with a high first frequency learns a sound; its best rate is small."""

    steps = 1200
    batch_size = 200

    def load(self) -> None:
        times = torch.linspace(-1, 1, 1200)[:, None]
        high = torch.sin(97 * times + 1) * torch.cos(3 * times)
        sound = (torch.sin(40 * times) + high + 0.5 * torch.sin(211 * times)) / 2
        self.divide(times, sound, 800)

    def build(self) -> nn.Module:
        return nn.Sequential(
            Sine(1, 64, 200.0, is_first=True),
            Sine(64, 64, 60.0),
            Sine(64, 64, 60.0),
            nn.Linear(64, 1),
        )


class HeatEquation(Task):
    """A net that solves u_t = 0.3 u_xx; tested by its relative L2 error.

    On the unit square, with u(x, 0) = sin(pi x) and zero at both ends. There is a flat solution
    that is hard to leave.
    """

    steps = 1200
    conduction = 0.3

    def load(self) -> None:
        self.test_inputs = torch.rand(1000, 2, generator=generator(8))
        place, time = self.test_inputs.split(1, dim=1)
        cooling = torch.exp(-self.conduction * math.pi**2 * time)
        self.test_targets = torch.sin(math.pi * place) * cooling

    def rows(self) -> int:
        """Return the points of a run, which never come twice: it is one epoch."""
        return self.steps * self.batch_size

    @functools.cached_property
    def points(self) -> Tensor:
        """Points (x, t) of every minibatch."""
        shape = (self.steps + SPARE, self.batch_size, 2)
        return torch.rand(shape, generator=generator(2000 + self.seed))

    def minibatch(self, index: int) -> Tensor:
        self.begin_noise(index)
        return self.points[index]

    def build(self) -> nn.Module:
        return perceptron(2, 32, 32, 32, 1, activation=nn.Tanh)

    def loss(self, network: nn.Module, minibatch: Tensor) -> Tensor:
        points = minibatch.clone().requires_grad_()
        (slopes,) = torch.autograd.grad(network(points).sum(), points, create_graph=True)
        (bends,) = torch.autograd.grad(slopes[:, 0].sum(), points, create_graph=True)
        residual = (slopes[:, 1] - self.conduction * bends[:, 0]).square().mean()
        place, time = minibatch[:32].unbind(1)
        start = torch.stack([place, 0 * place], 1)
        ends = torch.stack([(place > 0.5).float(), time], 1)
        wrong_start = network(start) - torch.sin(math.pi * start[:, :1])
        return residual + 10 * wrong_start.square().mean() + 10 * network(ends).square().mean()

    @torch.no_grad()
    def score(self, network: nn.Module, part: Part) -> float:
        inputs, targets = self.held_out(part)
        error = (network(inputs) - targets).square().mean()
        return float((error / targets.square().mean()).sqrt())
