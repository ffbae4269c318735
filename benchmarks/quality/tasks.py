"""The tasks: data that are split once, a net, a metric.

Training, validation and test part are the same for every seed of a run: the split has the seed
``SPLIT_SEED``. The seed of a run decides the initial weights, the order of the minibatches and the
dropout, and is the same for all methods.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annealtune.errors import DataError

SPLIT_SEED = 0
TEXT_VARIABLE = "ANNEALTUNE_TEXT"
EVALUATION_BATCH = 500

Metric = Literal["accuracy", "r2", "loss"]


class Part(NamedTuple):
    """Inputs and targets of the same length."""

    inputs: Tensor
    targets: Tensor


class Splits(NamedTuple):
    """What is trained on, what choices are made by, and what is looked at once a run."""

    train: Part
    validation: Part
    test: Part


@dataclass(frozen=True)
class Task:
    """One problem to train on.

    Attributes:
        name: as on the command line.
        title: for the page.
        metric: what methods are ranked by; accuracy and R² in points.
        batch_size: of a minibatch; the rest of an epoch that does not fill one is left out.
        epochs: of the reference.
        load: returns the data, from the path of a text if it needs one.
        build: returns the net, its weights from torch's global generator.
        has_batch_norm: whether averaged weights need their statistics anew.
        is_image: whether tensors are kept in channels-last order.
    """

    name: str
    title: str
    metric: Metric
    batch_size: int
    epochs: int
    load: Callable[[Path | None], Splits]
    build: Callable[[], nn.Module]
    has_batch_norm: bool = False
    is_image: bool = False

    @property
    def higher_is_better(self) -> bool:
        return self.metric != "loss"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a minibatch: squared error, or cross-entropy of the last axis."""
        if self.metric == "r2":
            return F.mse_loss(outputs, targets)
        return F.cross_entropy(outputs.flatten(0, -2), targets.flatten())


class Score(NamedTuple):
    """A net on one part of the data."""

    metric: float
    loss: float


@torch.no_grad()
def evaluate(task: Task, net: nn.Module, part: Part) -> Score:
    """Return metric and mean loss on a part, in evaluation mode; the mode is put back."""
    was_training = net.training
    net.eval()
    loss = right = 0.0
    for start in range(0, len(part.inputs), EVALUATION_BATCH):
        inputs, targets = (values[start : start + EVALUATION_BATCH] for values in part)
        outputs = net(inputs)
        loss += task.loss(outputs, targets).item() * len(inputs)
        if task.metric == "accuracy":
            right += float((outputs.argmax(-1) == targets).sum())
    net.train(was_training)
    loss /= len(part.inputs)
    if task.metric == "accuracy":
        return Score(100 * right / len(part.inputs), loss)
    if task.metric == "r2":
        return Score(100 * (1 - loss / float(part.targets.var(correction=0))), loss)
    return Score(loss, loss)


def minibatches(part: Part, batch_size: int, seed: int, epoch: int) -> Iterator[Part]:
    """Yield the whole minibatches of one epoch, in an order that only seed and epoch decide."""
    order = torch.randperm(
        len(part.inputs), generator=torch.Generator().manual_seed(1_000_003 * seed + epoch)
    )
    for start in range(0, len(order) - batch_size + 1, batch_size):
        chosen = order[start : start + batch_size]
        yield Part(part.inputs[chosen], part.targets[chosen])


# --- Data ---


def images(name: str, train_size: int | None, validation: float, text: Path | None) -> Splits:  # noqa: ARG001
    """Return a data set of the library: all of its test set, a part of its training set."""
    from annealtune.training import data

    dataset = data.load(name)
    if train_size is not None:
        dataset = data.subset(dataset, train_size, SPLIT_SEED)
    training, held_out = data.split(len(dataset.train_labels), validation, SPLIT_SEED)
    mean, deviation = (
        torch.tensor(values).view(1, -1, 1, 1) for values in (dataset.mean, dataset.std)
    )

    def part(pixels: Tensor, labels: Tensor) -> Part:
        inputs = (pixels / dataset.scale - mean) / deviation
        return Part(inputs.contiguous(memory_format=torch.channels_last), labels)

    return Splits(
        part(dataset.train_images[training], dataset.train_labels[training]),
        part(dataset.train_images[held_out], dataset.train_labels[held_out]),
        part(dataset.test_images, dataset.test_labels),
    )


def three_parts(inputs: Tensor, targets: Tensor) -> Splits:
    """Divide a table 60 : 20 : 20 and put its columns on the scale of the training part."""
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(SPLIT_SEED))
    ends = [round(share * len(inputs)) for share in (0.6, 0.8)]
    rows = order.tensor_split(ends)
    deviation, mean = torch.std_mean(inputs[rows[0]], dim=0)
    inputs = (inputs - mean) / deviation
    if targets.is_floating_point():
        deviation, mean = torch.std_mean(targets[rows[0]])
        targets = (targets - mean) / deviation
    return Splits(*(Part(inputs[chosen], targets[chosen]) for chosen in rows))


def _cancer(text: Path | None) -> Splits:  # noqa: ARG001
    from sklearn.datasets import load_breast_cancer

    inputs, targets = load_breast_cancer(return_X_y=True)
    return three_parts(torch.from_numpy(inputs).float(), torch.from_numpy(targets).long())


def _friedman(text: Path | None) -> Splits:  # noqa: ARG001
    from sklearn.datasets import make_friedman1

    inputs, targets = make_friedman1(20_000, noise=1.0, random_state=SPLIT_SEED)
    return three_parts(
        torch.from_numpy(inputs).float(), torch.from_numpy(targets).float().unsqueeze(1)
    )


CONTEXT = 64
CHARACTERS = 128


def shakespeare(text: Path | None) -> Splits:
    """Return windows of characters, each to be predicted from those before it.

    The first 90 % of the text are trained on, the next 5 % are for validation, the last for the
    test; no window reaches from one into the other.
    """
    path = text or (Path(os.environ[TEXT_VARIABLE]) if os.environ.get(TEXT_VARIABLE) else None)
    if path is None or not path.is_file():
        raise DataError(
            f"shakespeare: the text is not there, got {path}; give tinyshakespeare (or any plain "
            f"text) with --text FILE or in {TEXT_VARIABLE}"
        )
    codes = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
    codes = codes.long().clamp(max=CHARACTERS - 1)  # beyond ASCII: one character for all
    ends = [int(share * len(codes)) for share in (0.9, 0.95)]
    parts = []
    for piece in codes.tensor_split(ends):
        windows = piece.unfold(0, CONTEXT + 1, CONTEXT)
        parts.append(Part(windows[:, :-1].contiguous(), windows[:, 1:].contiguous()))
    return Splits(*parts)


# --- Nets ---


def perceptron(*widths: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _library_net(name: str, channels: int, size: int) -> nn.Module:
    from annealtune.training.models import build

    return build(name, channels=channels, image_size=(size, size), classes=10)


def _plain_cnn() -> nn.Module:
    """Three convolutions without BatchNorm, for which the scale of the weights matters."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 10))


class CharacterTransformer(nn.Module):
    """A small GPT: two pre-norm blocks of width 64 with four heads, causal."""

    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, width)
        self.positions = nn.Embedding(CONTEXT, width)
        for embedding in (self.characters, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)
        # One by one: nn.TransformerEncoder would start them all from copies of the same weights.
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CHARACTERS)
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        features = self.characters(codes) + self.positions.weight
        for block in self.blocks:
            features = block(features, src_mask=self.mask, is_causal=True)
        return self.head(self.norm(features))


TASKS = {
    task.name: task
    for task in (
        Task(
            "digits",
            "Digits, perceptron 64-128-128-10",
            "accuracy",
            batch_size=32,
            epochs=30,
            load=functools.partial(images, "digits", None, 0.2),
            build=lambda: perceptron(64, 128, 128, 10),
        ),
        Task(
            "fashion-mnist",
            "Fashion-MNIST, 7,000 images, small CNN with BatchNorm and dropout",
            "accuracy",
            batch_size=64,
            epochs=8,
            load=functools.partial(images, "fashion-mnist", 8_000, 0.125),
            build=lambda: _library_net("small-cnn-w2", 1, 28),
            has_batch_norm=True,
            is_image=True,
        ),
        Task(
            "cifar10",
            "CIFAR-10, 6,000 images, three convolutions without BatchNorm",
            "accuracy",
            batch_size=64,
            epochs=10,
            load=functools.partial(images, "cifar10", 7_000, 1 / 7),
            build=_plain_cnn,
            is_image=True,
        ),
        Task(
            "cifar10-resnet",
            "CIFAR-10, 2,000 images, ResNet18 at an eighth of its widths",
            "accuracy",
            batch_size=64,
            epochs=12,
            load=functools.partial(images, "cifar10", 3_000, 1 / 3),
            build=lambda: _library_net("resnet18-w8", 3, 32),
            has_batch_norm=True,
            is_image=True,
        ),
        Task(
            "shakespeare",
            "Characters of Shakespeare, transformer of two layers, width 64, context 64",
            "loss",
            batch_size=32,
            epochs=2,
            load=shakespeare,
            build=CharacterTransformer,
        ),
        Task(
            "cancer",
            "Breast cancer (569 rows), perceptron 30-64-64-2",
            "accuracy",
            batch_size=16,
            epochs=30,
            load=_cancer,
            build=lambda: perceptron(30, 64, 64, 2),
        ),
        Task(
            "friedman",
            "Friedman's first function (12,000 rows), perceptron 10-64-64-1",
            "r2",
            batch_size=128,
            epochs=15,
            load=_friedman,
            build=lambda: perceptron(10, 64, 64, 1),
        ),
    )
}
