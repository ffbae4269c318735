"""Does measuring the unit of temperature ruin a net whose H holds reckless rates?

    python benchmarks/measuring_phase.py

trains a small perceptron on digits with three kinds of measurement and four sets H, and prints the
lowest and the highest best-epoch validation accuracy over five seeds.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SGDSA, grid
from annealtune.annealing import PAPER_RATES
from annealtune.temperatures import Automatic
from annealtune.training import data

EPOCHS, BATCH_SIZE, SEEDS = 15, 32, range(5)
NEIGHBORHOODS = [
    (3.0, 1.0, 0.3, 0.1, 0.03),
    (4.0, 2.0, 1.0, 0.5, 0.1),
    (10.0, 1.0, 0.1, 0.01),
    (30.0, 10.0, 3.0, 1.0, 0.3, 0.1),
    PAPER_RATES,
]


class AcceptAll(Automatic):
    """The rejected alternative: no accept test during the measurement."""

    @property
    def temperature(self) -> float:
        return math.inf if self.unit is None else super().temperature


KINDS = {
    "accept all, start 10": lambda: AcceptAll(length=EPOCHS, start=10.0),
    "median so far, start 10": lambda: Automatic(length=EPOCHS, start=10.0),
    "median so far, start 3": lambda: Automatic(length=EPOCHS),
}


def best_accuracy(rates: tuple[float, ...], temperature: Automatic, seed: int) -> float:
    """Train once and return the best validation accuracy of an epoch."""
    digits = data.load("digits")
    training, validation = data.split(len(digits.train_targets), 0.2, 0)

    def batches(chosen: torch.Tensor, size: int, *, shuffle: bool) -> data.Batches:
        images, labels = digits.train_inputs[chosen], digits.train_targets[chosen]
        scale = {"mean": digits.mean, "std": digits.std, "scale": digits.scale}
        return data.Batches(images, labels, batch_size=size, seed=seed, shuffle=shuffle, **scale)

    torch.manual_seed(seed)
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    net = nn.Sequential(nn.Flatten(), *layers)
    opt = SGDSA(net, grid(lr=rates), temperature=temperature, seed=seed)
    train, held_out = (
        batches(training, BATCH_SIZE, shuffle=True),
        batches(validation, 500, shuffle=False),
    )
    best = 0.0
    for _ in range(EPOCHS):
        for x, y in train:
            opt.step(lambda x=x, y=y: F.cross_entropy(net(x), y))
        opt.cool()
        with torch.no_grad():
            right = sum(int((net(x).argmax(1) == y).sum()) for x, y in held_out)
        best = max(best, right / len(validation))
    return best


def main() -> None:
    torch.set_num_threads(1)
    print("| H |", " | ".join(KINDS), "|")
    print("| --- |", " | ".join("---" for _ in KINDS), "|")
    for rates in NEIGHBORHOODS:
        cells = []
        for kind in KINDS.values():
            scores = [best_accuracy(rates, kind(), seed) for seed in SEEDS]
            cells.append(f"{min(scores):.1%} - {max(scores):.1%}")
        print(f"| {', '.join(f'{rate:g}' for rate in rates)} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
