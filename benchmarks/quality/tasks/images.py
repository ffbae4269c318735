"""Tasks on images: digits, Fashion-MNIST at half its size or as pixels, CIFAR-10."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .task import Part, Sources, Task, generator, perceptron, pretrain


def fashion(sources: Sources, part: str, count: int, first: int = 0) -> tuple[Tensor, Tensor]:
    """Return images of 14 x 14 pixels and their labels, some of a part in the published order."""
    dataset = sources.dataset("fashion-mnist")
    images = dataset.train_inputs if part == "train" else dataset.test_inputs
    labels = dataset.train_targets if part == "train" else dataset.test_targets
    halved = F.avg_pool2d(images[first : first + count].float() / 255, 2)
    return halved.sub(0.286).div(0.32), labels[first : first + count]


class Digits(Task):
    """Digits of 8 x 8 pixels, perceptron with dropout."""

    def load(self) -> None:
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        order = np.random.RandomState(0).permutation(len(pixels))
        inputs, targets = torch.tensor(pixels[order]).float() / 16, torch.tensor(labels[order])
        self.inputs, self.test_inputs = inputs[:1000], inputs[1000:]
        self.targets, self.test_targets = targets[:1000], targets[1000:]

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )


class Convolutions(Task):
    """Two convolutions without BatchNorm."""

    steps = 1200
    batch_size = 48

    def load(self) -> None:
        self.inputs, self.targets = fashion(self.sources, "train", 6000)
        self.test_inputs, self.test_targets = fashion(self.sources, "test", 1000)

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(24 * 9, 10),
        )


class Deep(Task):
    """Ten linear layers of width 40, which begin on a plateau."""

    steps = 2000

    def load(self) -> None:
        images, self.targets = fashion(self.sources, "train", 6000)
        test_images, self.test_targets = fashion(self.sources, "test", 2000)
        self.inputs, self.test_inputs = images.flatten(1), test_images.flatten(1)

    def build(self) -> nn.Module:
        return perceptron(196, *[40] * 9, 10)


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


class FineTunedShifted(Task):
    """A trained CNN with BatchNorm, trained on with 800 images that are shifted and noisy."""

    steps = 1000
    batch_size = 32

    def load(self) -> None:
        images, self.targets = fashion(self.sources, "train", 800, 30_000)
        test_images, self.test_targets = fashion(self.sources, "test", 1000)
        self.inputs = self._shifted(images, generator(1))
        self.test_inputs = self._shifted(test_images, generator(2))

    def _shifted(self, images: Tensor, source: torch.Generator) -> Tensor:
        moved = torch.roll(images, (2, 1), (2, 3))
        return moved * 0.8 + 0.3 * torch.randn(images.shape, generator=source)

    def build(self) -> nn.Module:
        network = self._untrained()
        network.load_state_dict(self.sources.pretrained("fashion-batchnorm", self._pretrained))
        return network

    def _untrained(self) -> nn.Module:
        return nn.Sequential(
            *_convolution(1, 12),
            nn.MaxPool2d(2),
            *_convolution(12, 24),
            *_convolution(24, 24),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(216, 10),
        )

    def _pretrained(self) -> nn.Module:
        images, labels = fashion(self.sources, "train", 20_000)
        torch.manual_seed(5)
        network = self._untrained()

        def loss() -> Tensor:
            rows = torch.randint(20_000, (64,))
            return F.cross_entropy(network(images[rows]), labels[rows])

        return pretrain(network, loss, rate=3e-3, steps=2000)


class FineTunedOwn(FineTunedShifted):
    """The same CNN, trained on with 600 slightly noisy images of its own kind."""

    def load(self) -> None:
        images, self.targets = fashion(self.sources, "train", 600, 40_000)
        test_images, self.test_targets = fashion(self.sources, "test", 1500)
        self.inputs = images + 0.25 * torch.randn(images.shape, generator=generator(11))
        self.test_inputs = test_images + 0.25 * torch.randn(
            test_images.shape, generator=generator(12)
        )


class Contrastive(Task):
    """Two noisy views of an image are to be nearer to each other than to other images."""

    steps = 1200

    def load(self) -> None:
        self.inputs = fashion(self.sources, "train", 3000)[0].flatten(1)
        self.targets = torch.arange(3000)
        self.test_inputs = fashion(self.sources, "test", 1024)[0].flatten(1)
        self.test_targets = torch.arange(1024)

    def build(self) -> nn.Module:
        return perceptron(196, 96, 96, 24)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        images, _ = minibatch
        views = [
            images * (torch.rand(images.shape) > 0.3) + 0.3 * torch.randn(images.shape)
            for _ in range(2)
        ]
        ones, others = (F.normalize(network(view), dim=1) for view in views)
        likeness = ones @ others.T / 0.2
        own = torch.arange(len(images))
        return (F.cross_entropy(likeness, own) + F.cross_entropy(likeness.T, own)) / 2

    @torch.no_grad()
    def score(self, network: nn.Module, part: Part) -> float:
        inputs, _ = self.held_out(part)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(77)
            pieces = inputs.split(64)
            return sum(float(self.loss(network, (piece, piece))) for piece in pieces) / len(pieces)


class Autoencoder(Task):
    """Images through a layer of twelve."""

    steps = 1500

    def load(self) -> None:
        self.inputs = self.targets = fashion(self.sources, "train", 6000)[0].flatten(1)
        self.test_inputs = fashion(self.sources, "test", 1000)[0].flatten(1)
        self.test_targets = self.test_inputs

    def build(self) -> nn.Module:
        return perceptron(196, 64, 12, 64, 196)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = minibatch
        return F.mse_loss(network(inputs), targets)


class FewImages(Task):
    """Fashion-MNIST from few images, as rows of pixels."""

    images: int

    def load(self) -> None:
        images, self.targets = fashion(self.sources, "train", self.images)
        test_images, self.test_targets = fashion(self.sources, "test", 2000)
        self.inputs, self.test_inputs = images.flatten(1), test_images.flatten(1)


class Wide(FewImages):
    """One hidden layer of width 4096."""

    steps = 1000
    batch_size = 16
    images = 1000

    def build(self) -> nn.Module:
        return perceptron(196, 4096, 10)


class ResidualBlock(nn.Module):
    """Two layers, to whose outputs their inputs are added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = perceptron(width, width, width)

    def forward(self, features: Tensor) -> Tensor:
        return features + self.layers(features)


class Residual(FewImages):
    """Twelve blocks of two layers, without normalisation."""

    steps = 1000
    batch_size = 24
    images = 2000

    def build(self) -> nn.Module:
        blocks = [ResidualBlock(128) for _ in range(12)]
        return nn.Sequential(nn.Linear(196, 128), *blocks, nn.Linear(128, 10))


class BatchesOfFour(Task):
    """A small CNN that sees four images at a time."""

    steps = 3000
    batch_size = 4

    def load(self) -> None:
        self.inputs, self.targets = fashion(self.sources, "train", 10_000)
        self.test_inputs, self.test_targets = fashion(self.sources, "test", 2000)

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * 49, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        )


class FashionConvolutions(Task):
    """Three convolutions with BatchNorm on Fashion-MNIST."""

    steps = 1200
    batch_size = 16

    def load(self) -> None:
        self.inputs, self.targets = fashion(self.sources, "train", 10_000)
        self.test_inputs, self.test_targets = fashion(self.sources, "test", 2000)

    def build(self) -> nn.Module:
        return nn.Sequential(
            *self._layer(1, 16),
            *self._layer(16, 32, stride=2),
            *self._layer(32, 64, stride=2),
            nn.Flatten(),
            nn.Linear(64 * 16, 10),
        )

    def _layer(self, inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


class PatchBlock(nn.Module):
    """A pre-norm block with two heads, in which every patch sees every other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.perceptron_norm = nn.LayerNorm(width)
        self.perceptron = perceptron(width, 2 * width, width, activation=nn.GELU)
        self.dropout = nn.Dropout(0.1)

    def forward(self, features: Tensor) -> Tensor:
        parts = self.attention(self.attention_norm(features)).unflatten(-1, (3, 2, -1))
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(queries, keys, values)
        features = features + self.dropout(self.projection(seen.transpose(1, 2).flatten(2)))
        return features + self.dropout(self.perceptron(self.perceptron_norm(features)))


class PatchTransformer(nn.Module):
    """Two blocks over sixteen patches of 5 x 5 pixels, which overlap."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Conv2d(1, width, 5, stride=3)
        self.positions = nn.Parameter(torch.randn(16, width) * 0.02)
        self.blocks = nn.Sequential(PatchBlock(width), PatchBlock(width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.embedding(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(patches + self.positions)).mean(1))


class VisionTransformer(Task):
    """Fashion-MNIST by a small transformer."""

    steps = 1000
    batch_size = 32

    def load(self) -> None:
        self.inputs, self.targets = fashion(self.sources, "train", 10_000)
        self.test_inputs, self.test_targets = fashion(self.sources, "test", 2000)

    def build(self) -> nn.Module:
        return PatchTransformer()


def cifar(sources: Sources, part: str, count: int, first: int = 0) -> tuple[Tensor, Tensor]:
    """Return images of CIFAR-10 at half their size and their labels, some of a part in order."""
    dataset = sources.dataset("cifar10")
    images = dataset.train_inputs if part == "train" else dataset.test_inputs
    labels = dataset.train_targets if part == "train" else dataset.test_targets
    halved = F.avg_pool2d(images[first : first + count].float() / 255, 2)
    return halved.sub(0.47).div(0.23), labels[first : first + count]


class CifarConvolutions(Task):
    """Three convolutions and dropout on CIFAR-10."""

    steps = 1200
    batch_size = 24

    def load(self) -> None:
        self.inputs, self.targets = cifar(self.sources, "train", 10_000)
        self.test_inputs, self.test_targets = cifar(self.sources, "test", 2000)

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(32 * 16, 10),
        )


class Pixels(Task):
    """Fashion-MNIST as rows of 196 pixels."""

    images: int

    def load(self) -> None:
        images, self.targets = fashion(self.sources, "train", self.images)
        test_images, self.test_targets = fashion(self.sources, "test", 2000)
        self.inputs, self.test_inputs = images.flatten(1), test_images.flatten(1)


class WrongLabels(Pixels):
    """Three in ten labels to train on are wrong, those to test on are right."""

    steps = 2000
    images = 6000

    def load(self) -> None:
        super().load()
        source = generator(84)
        is_wrong = torch.rand(self.images, generator=source) < 0.3
        others = self.targets + torch.randint(1, 10, (self.images,), generator=source)
        self.targets = torch.where(is_wrong, others % 10, self.targets)

    def build(self) -> nn.Module:
        return perceptron(196, 128, 128, 10)


class SoftmaxRegression(Pixels):
    """One linear layer, zero at the start."""

    steps = 3000
    batch_size = 128
    images = 10_000

    def build(self) -> nn.Module:
        network = nn.Linear(196, 10)
        nn.init.zeros_(network.weight)
        nn.init.zeros_(network.bias)
        return network
