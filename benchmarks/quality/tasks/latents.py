"""Tasks in which what is seen comes from something unseen: codes, a flow of noise, strengths."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .labels import Pixels
from .noise import fixed_noise
from .task import Part, Task, generator, perceptron


class Codes(nn.Module):
    """An encoder, which returns means and logarithms of deviations, and a decoder."""

    def __init__(self, pixels: int, width: int, codes: int) -> None:
        super().__init__()
        self.encoder = perceptron(pixels, width, width, 2 * codes)
        self.decoder = perceptron(codes, width, width, pixels)


class Variational(Pixels):
    """A variational autoencoder with ten codes; tested by its bound, for one code of each image.

    Attributes:
        variance: of a pixel around what is decoded.
    """

    steps = 1500
    images = 10_000
    codes, variance = 10, 0.1

    def build(self) -> nn.Module:
        return Codes(196, 128, self.codes)

    def loss(self, network: Codes, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        images, _ = minibatch
        means, deviations = network.encoder(images).chunk(2, dim=1)
        codes = means + deviations.exp() * torch.randn(means.shape)
        errors = (network.decoder(codes) - images).square() / (2 * self.variance)
        divergences = (means.square() + (2 * deviations).exp() - 1) / 2 - deviations
        return errors.sum(1).mean() + divergences.sum(1).mean()

    def score(self, network: nn.Module, part: Part) -> float:
        with fixed_noise(91):
            return super().score(network, part)


class Coupling(nn.Module):
    """One number of two is scaled and moved by what a perceptron makes of the other."""

    def __init__(self, moved: int, width: int) -> None:
        super().__init__()
        self.moved = moved
        self.layers = perceptron(1, width, width, 2)

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return points, and the logarithms of how much they were stretched."""
        other = points[:, 1 - self.moved, None]
        scales, shifts = self.layers(other).unbind(1)
        stretched = 2 * torch.tanh(scales / 2)
        moved = points[:, self.moved] * stretched.exp() + shifts
        pair = [moved, other[:, 0]] if self.moved == 0 else [other[:, 0], moved]
        return torch.stack(pair, 1), stretched


class CouplingFlow(Task):
    """Eight affine couplings turn points on two half-moons into a normal distribution.

    Tested by the negative logarithm of the likelihood, which is above 0.
    """

    steps = 1500
    batch_size = 128

    def load(self) -> None:
        from sklearn.datasets import make_moons

        moons, _ = make_moons(8000, noise=0.08, random_state=92)
        points = torch.tensor((moons - moons.mean(0)) / moons.std(0)).float()
        self.inputs, self.test_inputs = points[:4000], points[4000:]
        self.targets, self.test_targets = torch.zeros(4000), torch.zeros(4000)

    def build(self) -> nn.Module:
        return nn.ModuleList([Coupling(layer % 2, 32) for layer in range(8)])

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        points, _ = minibatch
        likely = torch.zeros(len(points))
        for coupling in network:
            points, stretched = coupling(points)
            likely = likely + stretched
        likely = likely - points.square().sum(1) / 2 - math.log(2 * math.pi)
        return -likely.mean()


class Strengths(Task):
    """Who wins, from 60,000 matches of 2,000 players: a strength and a style for each.

    Strengths are zero at the start. Styles beat each other in a ring.
    """

    steps = 3000
    batch_size = 256
    players, matches = 2000, 60_000

    def load(self) -> None:
        source = generator(93)
        strengths = torch.randn(self.players, generator=source)
        styles = torch.randn(self.players, 2, generator=source)
        total = self.matches + 6000
        ones = torch.randint(self.players, (total,), generator=source)
        others = (ones + torch.randint(1, self.players, (total,), generator=source)) % self.players
        ahead = strengths[ones] - strengths[others] + _beats(styles[ones], styles[others])
        wins = (torch.rand(total, generator=source) < torch.sigmoid(2 * ahead)).float()
        pairs = torch.stack([ones, others], 1)
        self.inputs, self.test_inputs = pairs[: self.matches], pairs[self.matches :]
        self.targets, self.test_targets = wins[: self.matches], wins[self.matches :]

    def build(self) -> nn.Module:
        network = nn.ModuleDict(
            {"strengths": nn.Embedding(self.players, 1), "styles": nn.Embedding(self.players, 2)}
        )
        nn.init.zeros_(network["strengths"].weight)
        nn.init.normal_(network["styles"].weight, std=0.1)
        return network

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        pairs, wins = minibatch
        one, other = network["strengths"](pairs)[..., 0].unbind(1)
        ahead = one - other + _beats(*network["styles"](pairs).unbind(1))
        return F.binary_cross_entropy_with_logits(ahead, wins)


def _beats(ones: Tensor, others: Tensor) -> Tensor:
    """Return by how much styles beat others; the other way round it is the same below zero."""
    return ones[:, 0] * others[:, 1] - ones[:, 1] * others[:, 0]
