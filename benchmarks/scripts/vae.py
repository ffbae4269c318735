"""A variational autoencoder on Fashion-MNIST, in the style of PyTorch's examples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam

from .common import Part, Script, Tuned
from .data import Images


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 400), nn.ReLU())
        self.mean = nn.Linear(400, 20)
        self.log_variance = nn.Linear(400, 20)
        self.decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.encoder(images)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decoder(code), mean, log_variance


class VAE(Script):
    steps = 1000
    batch_size = 128

    def load(self) -> None:
        self.images = Images(self.sources, "fashion-mnist")

    def model(self) -> nn.Module:
        return Autoencoder()

    def minibatch(self) -> tuple[Tensor, ...]:
        return self.images.draw(self.batch_size)[:1]

    def held_out(self, part: Part) -> Iterator[tuple[Tensor, ...]]:
        return ((images,) for images, _ in self.images.held_out(part))

    def loss(self, model: nn.Module, *minibatch: Tensor) -> Tensor:
        (images,) = minibatch
        again, mean, log_variance = model(images)
        error = F.binary_cross_entropy_with_logits(again, images.flatten(1), reduction="sum")
        divergence = (mean**2 + log_variance.exp() - log_variance - 1).sum() / 2
        return (error + divergence) / len(images)

    def hand_tuned(self, model: nn.Module) -> Tuned:
        return Adam(model.parameters(), lr=1e-3), None
