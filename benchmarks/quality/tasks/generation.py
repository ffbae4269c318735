"""Tasks in which what is seen is to be made: from noise, from codes, from a density."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, Normal
from torch.nn import functional as F

from .images import Digits, Pixels, fashion
from .task import Part, Task, fixed_noise, generator, perceptron


class Denoiser(nn.Module):
    """A perceptron that sees noisy pixels and the time, as sines of several frequencies."""

    def __init__(self, pixels: int, width: int, frequencies: int = 8) -> None:
        super().__init__()
        self.frequencies = frequencies
        self.layers = perceptron(
            pixels + 2 * frequencies, width, width, width, pixels, activation=nn.SiLU
        )

    def forward(self, noisy: Tensor, times: Tensor) -> Tensor:
        angles = times * 2.0 ** torch.arange(self.frequencies) * math.pi / 2
        return self.layers(torch.cat([noisy, angles.sin(), angles.cos()], 1))


class Diffusion(Digits):
    """A small diffusion model of digits: find the noise in noisy pixels."""

    steps = 1500

    def load(self) -> None:
        super().load()
        self.inputs, self.test_inputs = 2 * self.inputs - 1, 2 * self.test_inputs - 1

    def build(self) -> nn.Module:
        return Denoiser(64, 128)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        pixels, _ = minibatch
        times = torch.rand(len(pixels), 1)
        noise = torch.randn(pixels.shape)
        angles = times * math.pi / 2
        return F.mse_loss(network(pixels * angles.cos() + noise * angles.sin(), times), noise)

    @torch.no_grad()
    def score(self, network: nn.Module, part: Part) -> float:
        pixels, labels = self.held_out(part)
        with fixed_noise(31):
            return float(self.loss(network, (pixels.repeat(8, 1), labels)))


class Denoising(Task):
    """Find all pixels of an image of which half are blank."""

    steps = 1200

    def load(self) -> None:
        self.inputs = self.targets = fashion(self.sources, "train", 6000)[0].flatten(1)
        self.test_inputs = fashion(self.sources, "test", 2000)[0].flatten(1)
        self.test_targets = self.test_inputs

    def build(self) -> nn.Module:
        return perceptron(196, 256, 256, 196)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = minibatch
        seen = torch.rand(inputs.shape) < 0.5
        return F.mse_loss(network(inputs * seen), targets)

    @torch.no_grad()
    def score(self, network: nn.Module, part: Part) -> float:
        with fixed_noise(32):
            return float(self.loss(network, self.held_out(part)))


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


class MixtureDensity(Task):
    """Bishop's inverse problem: up to three values fit a place; a mixture of five normals.

    Tested by the negative logarithm of the likelihood, plus 1 so that it is above 0.
    """

    steps = 1500
    components = 5

    def load(self) -> None:
        source = generator(81)
        values = torch.rand(4000, generator=source)
        noise = 0.1 * torch.randn(4000, generator=source)
        places = values + 0.3 * torch.sin(2 * math.pi * values) + noise
        inputs = ((places - places.mean()) / places.std())[:, None]
        targets = (values - values.mean()) / values.std()
        self.inputs, self.test_inputs = inputs[:2000], inputs[2000:]
        self.targets, self.test_targets = targets[:2000], targets[2000:]

    def build(self) -> nn.Module:
        return perceptron(1, 64, 64, 3 * self.components, activation=nn.Tanh)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = minibatch
        weights, means, deviations = network(inputs).chunk(3, dim=1)
        # Unchecked: a net that has diverged is to have a loss that is not finite.
        mixture = MixtureSameFamily(
            Categorical(logits=weights, validate_args=False),
            Normal(means, deviations.exp(), validate_args=False),
            validate_args=False,
        )
        return -mixture.log_prob(targets).mean()

    def score(self, network: nn.Module, part: Part) -> float:
        return super().score(network, part) + 1
