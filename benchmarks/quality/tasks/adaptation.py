"""Tasks that go on from a trained net: a new head, other images, adapters, another look."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .images import PatchTransformer, cifar, fashion
from .task import Sources, Task, perceptron, pretrain
from .text import FineTunedTransformer

# Classes 0 to 4 are what the body is trained on beforehand, those from here on are new to it.
FIRST_NEW = 5


def _of_classes(
    sources: Sources, part: str, count: int, *, are_new: bool, first: int = 0
) -> tuple[Tensor, Tensor]:
    """Return those images of a stretch whose classes are new, or not; labels from 0 to 4."""
    images, labels = fashion(sources, part, count, first)
    chosen = (labels >= FIRST_NEW) == are_new
    return images[chosen], labels[chosen] % FIRST_NEW


class NewHead(Task):
    """A CNN that knows five classes of Fashion-MNIST is to learn the other five.

    Attributes:
        images: of the published images, how many are looked through for the new classes.
    """

    images = 2000

    def load(self) -> None:
        self.inputs, self.targets = _of_classes(
            self.sources, "train", self.images, are_new=True, first=30_000
        )
        self.test_inputs, self.test_targets = _of_classes(self.sources, "test", 3000, are_new=True)

    def build(self) -> nn.Module:
        network = nn.Sequential(self._untrained(), nn.Linear(128, FIRST_NEW))
        with torch.random.fork_rng(devices=[]):
            weights = self.sources.pretrained("fashion-five-classes", self._pretrained)
        network[0].load_state_dict(weights)
        return network

    def _untrained(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )

    def _pretrained(self) -> nn.Module:
        images, labels = _of_classes(self.sources, "train", 20_000, are_new=False)
        torch.manual_seed(6)
        body = self._untrained()
        network = nn.Sequential(body, nn.Linear(128, FIRST_NEW))

        def loss() -> Tensor:
            rows = torch.randint(len(images), (64,))
            return F.cross_entropy(network(images[rows]), labels[rows])

        pretrain(network, loss, rate=3e-3, steps=1500)
        return body


class TwoGroups(NewHead):
    """The whole CNN is trained on few images, its body at a tenth of the rate of the head."""

    steps = 1000
    batch_size = 32

    def groups(self, network: nn.Module) -> list[tuple[list[nn.Parameter], float]]:
        body, head = network.children()
        return [(list(body.parameters()), 0.1), (list(head.parameters()), 1.0)]


class FrozenBody(NewHead):
    """Only the head is trained, on features that stay as they are."""

    steps = 1500
    images = 4000

    def build(self) -> nn.Module:
        network = super().build()
        network[0].requires_grad_(False)
        return network


class Unfrozen(Task):
    """A perceptron trained on 20,000 images is trained on with 400 that are mirrored."""

    steps = 1500
    batch_size = 32

    def load(self) -> None:
        images, self.targets = fashion(self.sources, "train", 400, 30_000)
        test_images, self.test_targets = fashion(self.sources, "test", 2000)
        self.inputs, self.test_inputs = (part.flip(3) for part in (images, test_images))

    def build(self) -> nn.Module:
        network = self._untrained()
        network.load_state_dict(self.sources.pretrained("fashion-perceptron", self._pretrained))
        return network

    def _untrained(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), perceptron(196, 128, 128, 10))

    def _pretrained(self) -> nn.Module:
        images, labels = fashion(self.sources, "train", 20_000)
        torch.manual_seed(6)
        network = self._untrained()

        def loss() -> Tensor:
            rows = torch.randint(20_000, (64,))
            return F.cross_entropy(network(images[rows]), labels[rows])

        return pretrain(network, loss, rate=2e-3, steps=3000)


class LowRank(nn.Module):
    """A linear layer that stays as it is, and beside it one of low rank, zero at first."""

    def __init__(self, linear: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs) + self.up(self.down(inputs))


class LowRankAdapter(FineTunedTransformer):
    """The pre-trained GPT is frozen; adapters of rank 4 in its blocks learn the other text."""

    steps = 1000
    test_windows = 800

    def build(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            network = super().build().requires_grad_(False)
        for block in network.blocks:
            for name in ("attention", "projection", "widening", "narrowing"):
                setattr(block, name, LowRank(getattr(block, name)))
        return network


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
