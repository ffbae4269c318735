"""Tasks in which noise is to be taken away from images: diffusion, masked pixels."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .images import Digits, fashion
from .noise import fixed_noise
from .task import Part, Task, perceptron


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
