"""Tasks in which a net is a function of place and time: images, sounds, equations, bodies."""

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


class Oscillator(Task):
    """A net that solves u'' + 2 d u' + w^2 u = 0; tested by its relative L2 error.

    On the unit interval, let go at rest from 1; the solution is known.

    Attributes:
        damping, frequency: d and w.
    """

    steps = 1500
    damping, frequency = 2.0, 10.0

    def load(self) -> None:
        self.test_inputs = torch.rand(1000, 1, generator=generator(83))
        damped = math.sqrt(self.frequency**2 - self.damping**2)
        angles = damped * self.test_inputs
        waves = torch.cos(angles) + self.damping / damped * torch.sin(angles)
        self.test_targets = torch.exp(-self.damping * self.test_inputs) * waves

    @functools.cached_property
    def times(self) -> Tensor:
        """Times of every minibatch."""
        shape = (self.steps + SPARE, self.batch_size, 1)
        return torch.rand(shape, generator=generator(2000 + self.seed))

    def rows(self) -> int:
        """Return the times of a run, which never come twice: it is one epoch."""
        return self.steps * self.batch_size

    def minibatch(self, index: int) -> Tensor:
        self.begin_noise(index)
        return self.times[index]

    def build(self) -> nn.Module:
        return perceptron(1, 32, 32, 32, 1, activation=nn.Tanh)

    def loss(self, network: nn.Module, minibatch: Tensor) -> Tensor:
        # The first time is the start.
        times = torch.cat([torch.zeros(1, 1), minibatch]).requires_grad_()
        values = network(times)
        (slopes,) = torch.autograd.grad(values.sum(), times, create_graph=True)
        (bends,) = torch.autograd.grad(slopes.sum(), times, create_graph=True)
        forces = bends + 2 * self.damping * slopes + self.frequency**2 * values
        residual = (forces / self.frequency**2).square().mean()
        wrong_start = (values[0] - 1).square() + (slopes[0] / self.frequency).square()
        return residual + wrong_start.sum()

    @torch.no_grad()
    def score(self, network: nn.Module, part: Part) -> float:
        inputs, targets = self.held_out(part)
        error = (network(inputs) - targets).square().mean()
        return float((error / targets.square().mean()).sqrt())


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
