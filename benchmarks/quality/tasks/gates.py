"""Tasks in which what is seen decides on weights: experts, a hypernetwork, attention to points."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .images import Pixels
from .task import Task, generator, perceptron


class Mixture(nn.Module):
    """Small perceptrons, and another that says how much each is to be believed."""

    def __init__(self, inputs: int, experts: int, width: int) -> None:
        super().__init__()
        self.gate = perceptron(inputs, 64, experts)
        self.hidden = nn.Parameter(torch.randn(experts, inputs, width) / math.sqrt(inputs))
        self.biases = nn.Parameter(torch.zeros(experts, 1, width))
        self.heads = nn.Parameter(torch.randn(experts, width, 1) / math.sqrt(width))

    def forward(self, inputs: Tensor) -> Tensor:
        values = F.relu(inputs @ self.hidden + self.biases) @ self.heads
        return (values[..., 0].T * self.gate(inputs).softmax(1)).sum(1)


class Experts(Task):
    """A function that is linear around each of six places, with noise; sixteen experts."""

    steps = 2500
    columns, places = 20, 6

    def load(self) -> None:
        source = generator(94)
        inputs = torch.randn(16_000, self.columns, generator=source)
        places = torch.randn(self.places, self.columns, generator=source)
        slopes = torch.randn(self.places, self.columns, generator=source)
        heights = torch.randn(self.places, generator=source)
        nearest = torch.cdist(inputs, places).argmin(1)
        values = (inputs * slopes[nearest]).sum(1) + heights[nearest]
        noise = 0.3 * torch.randn(16_000, generator=source)
        targets = (values - values.mean()) / values.std() + noise
        self.inputs, self.test_inputs = inputs[:12_000], inputs[12_000:]
        self.targets, self.test_targets = targets[:12_000], targets[12_000:]

    def build(self) -> nn.Module:
        return Mixture(self.columns, 16, 64)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = minibatch
        return F.mse_loss(network(inputs), targets)


class Painter(nn.Module):
    """A perceptron that returns, for an image, the weights of a SIREN from places to pixels.

    At first they are nearly the same for every image, and those that a SIREN starts with.
    """

    def __init__(self, pixels: int, width: int, painting: int, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency
        # Weights, and in the last row biases.
        self.shapes = [(3, painting), (painting + 1, painting), (painting + 1, 1)]
        self.layers = perceptron(pixels, width, width, sum(map(math.prod, self.shapes)))
        bound = math.sqrt(6 / painting) / frequency
        first = [
            torch.empty(shape).uniform_(-bound, bound).flatten()
            for shape, bound in zip(self.shapes, (1 / 2, bound, bound), strict=True)
        ]
        with torch.no_grad():
            self.layers[-1].weight.mul_(0.1)
            self.layers[-1].bias.copy_(torch.cat(first))

    def forward(self, images: Tensor, places: Tensor) -> Tensor:
        parts = self.layers(images).split(list(map(math.prod, self.shapes)), dim=1)
        features = places
        for part, shape in zip(parts, self.shapes, strict=True):
            weights = part.unflatten(1, shape)
            sums = features @ weights[:, :-1] + weights[:, -1:]
            features = torch.sin(self.frequency * sums)
        return sums[..., 0]


class Hypernetwork(Pixels):
    """From every other pixel of an image, the weights of a net that paints all of them."""

    steps = 1200
    batch_size = 32
    images = 6000

    def load(self) -> None:
        super().load()
        line = torch.linspace(-1, 1, 14)
        self.places = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
        self.seen = (torch.arange(14)[:, None] + torch.arange(14)).flatten() % 2

    def build(self) -> nn.Module:
        return Painter(196, 256, 16, 30.0)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        images, _ = minibatch
        return F.mse_loss(network(images * self.seen, self.places), images)


class Attentive(nn.Module):
    """Features of each point; four learned questions ask which points to look at."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.features = perceptron(3, width, width, width, activation=nn.GELU)
        self.questions = nn.Linear(width, 4)
        self.head = perceptron(4 * width, width, classes, activation=nn.GELU)

    def forward(self, clouds: Tensor) -> Tensor:
        features = self.features(clouds)
        attention = self.questions(features).softmax(1)
        return self.head((attention.transpose(1, 2) @ features).flatten(1))


class PointClouds(Task):
    """Which of six bodies 48 points lie on, turned about the upright axis, with noise."""

    steps = 1500
    batch_size = 32
    points, of_each_body = 48, 1334

    def load(self) -> None:
        source = generator(95)
        shape = (self.of_each_body, self.points)
        clouds = torch.cat([body(shape, source) for body in _BODIES])
        clouds = clouds - clouds.mean(1, keepdim=True)
        clouds = clouds / clouds.square().mean((1, 2), keepdim=True).sqrt()
        angles = 2 * math.pi * torch.rand(len(clouds), 1, generator=source)
        across, up, along = clouds.unbind(2)
        turned = [
            across * angles.cos() - along * angles.sin(),
            up,
            across * angles.sin() + along * angles.cos(),
        ]
        clouds = torch.stack(turned, 2) + 0.2 * torch.randn(clouds.shape, generator=source)
        labels = torch.arange(len(_BODIES)).repeat_interleave(self.of_each_body)
        order = torch.randperm(len(clouds), generator=source)
        self.inputs, self.test_inputs = clouds[order[:5000]], clouds[order[5000:]]
        self.targets, self.test_targets = labels[order[:5000]], labels[order[5000:]]

    def build(self) -> nn.Module:
        return Attentive(96, len(_BODIES))


def _ball(shape: tuple[int, int], source: torch.Generator) -> Tensor:
    return F.normalize(torch.randn(*shape, 3, generator=source), dim=2)


def _cube(shape: tuple[int, int], source: torch.Generator) -> Tensor:
    points = 2 * torch.rand(*shape, 3, generator=source) - 1
    return points / points.abs().amax(2, keepdim=True)


def _octahedron(shape: tuple[int, int], source: torch.Generator) -> Tensor:
    points = torch.randn(*shape, 3, generator=source)
    return points / points.abs().sum(2, keepdim=True)


def _cylinder(shape: tuple[int, int], source: torch.Generator) -> Tensor:
    heights = 2 * torch.rand(*shape, 1, generator=source) - 1
    return torch.cat([_circle(shape, source), heights], 2)


def _cone(shape: tuple[int, int], source: torch.Generator) -> Tensor:
    heights = torch.rand(*shape, 1, generator=source).sqrt()
    return torch.cat([heights * _circle(shape, source), 2 * heights], 2)


def _ring(shape: tuple[int, int], source: torch.Generator) -> Tensor:
    along, across = _circle(shape, source), _circle(shape, source)
    return torch.cat([along * (1 + 0.5 * across[..., :1]), 0.5 * across[..., 1:]], 2)


def _circle(shape: tuple[int, int], source: torch.Generator) -> Tensor:
    return F.normalize(torch.randn(*shape, 2, generator=source), dim=2)


_BODIES = (_ball, _cube, _octahedron, _cylinder, _cone, _ring)
