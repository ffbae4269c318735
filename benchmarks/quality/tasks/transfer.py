"""Tasks that go on from a trained net with many images of another look: in grey, in negative."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .images import fashion
from .task import Task, pretrain
from .vision import PatchTransformer, cifar


class OtherLook(Task):
    """A net was trained on images and goes on with images that look otherwise.

    Attributes:
        kept_as: name of the trained net.
    """

    kept_as: str

    def untrained(self) -> nn.Module:
        """Return the net as it was before it was trained."""
        raise NotImplementedError

    def seen_before(self) -> tuple[Tensor, Tensor]:
        """Return the images that it was trained on, and their labels."""
        raise NotImplementedError

    def build(self) -> nn.Module:
        network = self.untrained()
        network.load_state_dict(self.sources.pretrained(self.kept_as, self._pretrained))
        return network

    def _pretrained(self) -> nn.Module:
        images, labels = self.seen_before()
        torch.manual_seed(9)
        network = self.untrained()

        def loss() -> Tensor:
            rows = torch.randint(len(images), (64,))
            return F.cross_entropy(network(images[rows]), labels[rows])

        return pretrain(network, loss, rate=3e-3, steps=2000)


class ConvolutionBlock(nn.Module):
    """A convolution with GroupNorm, to whose outputs its inputs are added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, features: Tensor) -> Tensor:
        return features + F.relu(self.norm(self.convolution(features)))


class FineTunedGrey(OtherLook):
    """A residual CNN for CIFAR-10 in colour, trained on with 6,000 images in grey."""

    steps = 1000
    batch_size = 24
    kept_as = "cifar-colour"

    def load(self) -> None:
        images, self.targets = cifar(self.sources, "train", 6000, 30_000)
        test_images, self.test_targets = cifar(self.sources, "test", 2000)
        self.inputs, self.test_inputs = (
            part.mean(1, keepdim=True).expand(-1, 3, -1, -1) for part in (images, test_images)
        )

    def seen_before(self) -> tuple[Tensor, Tensor]:
        return cifar(self.sources, "train", 30_000)

    def untrained(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 24, 3, stride=2, padding=1),
            ConvolutionBlock(24),
            ConvolutionBlock(24),
            nn.MaxPool2d(2),
            ConvolutionBlock(24),
            nn.Flatten(),
            nn.Linear(24 * 16, 10),
        )


class BiasesOnly(OtherLook):
    """A transformer for Fashion-MNIST learns 6,000 negatives by its biases and norms alone."""

    steps = 1200
    batch_size = 32
    kept_as = "fashion-patches"

    def load(self) -> None:
        images, self.targets = fashion(self.sources, "train", 6000, 30_000)
        test_images, self.test_targets = fashion(self.sources, "test", 2000)
        self.inputs, self.test_inputs = -images, -test_images

    def seen_before(self) -> tuple[Tensor, Tensor]:
        return fashion(self.sources, "train", 20_000)

    def untrained(self) -> nn.Module:
        return PatchTransformer()

    def build(self) -> nn.Module:
        network = super().build()
        for parameter in network.parameters():
            parameter.requires_grad_(parameter.ndim == 1)
        return network
