"""What a task is: a net, minibatches, a loss, a test."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annealtune.errors import DataError

# Minibatches beyond the run, to compute the statistics of BatchNorm from.
SPARE = 64

Part = Literal["validation", "test"]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@contextlib.contextmanager
def fixed_noise(seed: int) -> Iterator[None]:
    """Seed torch's global generator within the block, and put it back after that."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@dataclass(frozen=True)
class Sources:
    """Where data comes from, and where nets are kept that were trained beforehand.

    Attributes:
        data_dir: holds CIFAR-10 and Fashion-MNIST; None is where ``annealtune train`` looks.
        text: a plain text of about a million characters.
        cache: folder for pre-trained nets.
    """

    data_dir: Path | None = None
    text: Path | None = None
    cache: Path = Path("benchmarks/.cache")

    def read_text(self) -> str:
        if self.text is None or not self.text.is_file():
            raise DataError(
                f"the text is not there, got {self.text}; give tinyshakespeare with --text FILE"
            )
        return self.text.read_text(encoding="utf-8")

    def dataset(self, name: str) -> Any:
        return _dataset(name, self.data_dir)

    def pretrained(self, name: str, train: Callable[[], nn.Module]) -> dict[str, Tensor]:
        """Return the weights of a net, which is trained the first time."""
        path = self.cache / f"{name}.pt"
        if not path.exists():
            self.cache.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".tmp")
            torch.save(train().state_dict(), part)
            part.replace(path)
        return torch.load(path, weights_only=True)


@functools.lru_cache
def _dataset(name: str, data_dir: Path | None) -> Any:
    from annealtune.training import data

    return data.load(name, data_dir=data_dir)


class Task:
    """One problem to train on; by default classes, from rows that `load` puts in place.

    Attributes:
        steps: gradients that a run may cost.
        batch_size: rows in a minibatch, drawn with replacement.
        inputs, targets: rows to train on.
        test_inputs, test_targets: rows that are held out: every other one to choose rates by
            (validation), the rest to test on.
        has_objective: whether arms are to be judged by `objective`, because the loss does not
            measure progress.
    """

    steps = 1200
    batch_size = 64
    has_objective = False
    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor

    def __init__(self, sources: Sources, seed: int = 0, length_factor: float = 1.0) -> None:
        self.sources = sources
        self.seed = seed
        self.steps = round(type(self).steps * length_factor)
        self.load()

    def load(self) -> None:
        """Put the data in place; the same for every seed."""
        raise NotImplementedError

    def build(self) -> nn.Module:
        """Return a new net, its weights from torch's global generator."""
        raise NotImplementedError

    def network(self) -> nn.Module:
        """Return the net that a run starts with."""
        torch.manual_seed(self.seed)
        return self.build().train()

    def rows(self) -> int:
        """Return how many there are to draw from."""
        return len(self.inputs)

    @functools.cached_property
    def chosen(self) -> Tensor:
        """The rows of every minibatch."""
        shape = (self.steps + SPARE, self.batch_size)
        return torch.randint(self.rows(), shape, generator=generator(1000 + self.seed))

    def minibatch(self, index: int) -> Any:
        """Return inputs and targets; torch's global generator is put where its dropout begins."""
        self.begin_noise(index)
        rows = self.chosen[index]
        return self.inputs[rows], self.targets[rows]

    def begin_noise(self, index: int) -> None:
        # What torch.manual_seed does to the CPU, without a look at devices that are not there.
        torch.default_generator.manual_seed(1_000_003 * self.seed + index)

    def loss(self, network: nn.Module, minibatch: Any) -> Tensor:
        inputs, targets = minibatch
        return F.cross_entropy(network(inputs), targets)

    def groups(self, network: nn.Module) -> list[tuple[list[nn.Parameter], float]]:
        """Return what is trained: parameters, and their multiple of the rate."""
        return [([p for p in network.parameters() if p.requires_grad], 1.0)]

    def objective(self, network: nn.Module) -> list[float]:
        """Return what arms are judged by, where `has_objective`: smaller is better."""
        raise NotImplementedError

    @torch.no_grad()
    def score(self, network: nn.Module, part: Part) -> float:
        """Return what counts in the end, smaller is better and above 0, in evaluation mode.

        By default that is the loss on every other held-out row.
        """
        network.eval()
        loss = float(self.loss(network, self.held_out(part)))
        network.train()
        return loss

    def held_out(self, part: Part) -> tuple[Tensor, Tensor]:
        rows = slice(0 if part == "validation" else 1, None, 2)
        return self.test_inputs[rows], self.test_targets[rows]

    @property
    def steps_per_epoch(self) -> int:
        return max(1, self.rows() // self.batch_size)


def perceptron(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


def pretrain(
    network: nn.Module, loss: Callable[[], Tensor], *, rate: float, steps: int
) -> nn.Module:
    """Train with AdamW, the rate held for half of the steps and falling to nothing after that."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (steps - step) / steps * 2)
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return network
