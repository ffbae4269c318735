"""Tasks on digits of 8 x 8 pixels: triplets, a deep net, rows read in turn, new classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .images import Digits
from .task import Sources, generator, perceptron, pretrain

# Digits below this are what a net is trained on beforehand, those from here on are new to it.
FIRST_NEW = 5


class Triplets(Digits):
    """A noisy digit is to be nearer to one of its class than to one of another class."""

    steps = 2000

    def load(self) -> None:
        super().load()
        source = generator(86)
        self.inputs, self.targets = self._triplets(self.inputs, self.targets, 6000, source)
        self.test_inputs, self.test_targets = self._triplets(
            self.test_inputs, self.test_targets, 2000, source
        )

    def _triplets(
        self, images: Tensor, labels: Tensor, count: int, source: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return images in threes: any, another of its class, one of another class."""
        noisy = images + 0.3 * torch.randn(images.shape, generator=source)
        anchors = torch.randint(len(images), (count,), generator=source)
        is_same = labels[anchors, None] == labels
        is_other = anchors[:, None] != torch.arange(len(images))
        alike = torch.multinomial((is_same & is_other).float(), 1, generator=source)[:, 0]
        unlike = torch.multinomial((~is_same).float(), 1, generator=source)[:, 0]
        return noisy[torch.stack([anchors, alike, unlike], 1)], labels[anchors]

    def build(self) -> nn.Module:
        return perceptron(64, 64, 64, 16)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        triplets, _ = minibatch
        return F.triplet_margin_loss(*network(triplets).unbind(1))


class DeepTanh(Digits):
    """Sixteen layers with tanh between them, from Xavier's initial weights."""

    steps = 1200

    def build(self) -> nn.Module:
        network = perceptron(64, *[48] * 15, 10, activation=nn.Tanh)
        for layer in network:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        return network


class Reader(nn.Module):
    """One GRU, and classes from where it ends."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.memory = nn.GRU(inputs, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, sequences: Tensor) -> Tensor:
        features, _ = self.memory(sequences)
        return self.head(features[:, -1])


class RowsOfDigits(Digits):
    """The eight rows of a digit are read from top to bottom."""

    steps = 1200
    batch_size = 32

    def load(self) -> None:
        super().load()
        self.inputs = self.inputs.unflatten(1, (8, 8))
        self.test_inputs = self.test_inputs.unflatten(1, (8, 8))

    def build(self) -> nn.Module:
        return Reader(8, 48, 10)


def _of_classes(sources: Sources, *, are_new: bool) -> tuple[Tensor, Tensor]:
    """Return all digits that are new, or not; labels from 0 to 4."""
    digits = Digits(sources)
    images = torch.cat([digits.inputs, digits.test_inputs])
    labels = torch.cat([digits.targets, digits.test_targets])
    chosen = (labels >= FIRST_NEW) == are_new
    return images[chosen], labels[chosen] % FIRST_NEW


class FineTunedDigits(Digits):
    """A perceptron that knows the digits 0 to 4 learns 5 to 9 from 150 images, with a new head."""

    steps = 2500
    batch_size = 32
    images = 150

    def load(self) -> None:
        images, labels = _of_classes(self.sources, are_new=True)
        self.inputs, self.test_inputs = images[: self.images], images[self.images :]
        self.targets, self.test_targets = labels[: self.images], labels[self.images :]

    def build(self) -> nn.Module:
        network = nn.Sequential(self._untrained(), nn.Linear(128, FIRST_NEW))
        with torch.random.fork_rng(devices=[]):
            weights = self.sources.pretrained("digits-five-classes", self._pretrained)
        network[0].load_state_dict(weights)
        return network

    def _untrained(self) -> nn.Module:
        return nn.Sequential(perceptron(64, 128, 128), nn.ReLU())

    def _pretrained(self) -> nn.Module:
        images, labels = _of_classes(self.sources, are_new=False)
        torch.manual_seed(7)
        body = self._untrained()
        network = nn.Sequential(body, nn.Linear(128, FIRST_NEW))

        def loss() -> Tensor:
            rows = torch.randint(len(images), (64,))
            return F.cross_entropy(network(images[rows]), labels[rows])

        pretrain(network, loss, rate=1e-3, steps=1500)
        return body
