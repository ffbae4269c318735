"""The default on tasks that played no part in any of its choices: validation scores, few seeds.

    python -m benchmarks.other_tasks [--tasks NAMES] [--methods NAMES] [--text FILE]

The constants of the default were chosen on validation scores of the tasks of `benchmarks.quality`.
These are others, with the same budget rules: a regression of few rows, a deep and a wide
perceptron, a small vision transformer, a recurrent language model. AdamW with cosine decay at five
rates shows what there is to reach; no test part is looked at.
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.quality import tasks
from benchmarks.quality.methods import METHODS
from benchmarks.quality.run import Spec, run

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
SEEDS = (0, 1)


class Recurrent(nn.Module):
    """Two GRU layers of width 192 over characters."""

    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.characters = nn.Embedding(tasks.CHARACTERS, width)
        self.layers = nn.GRU(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, tasks.CHARACTERS)

    def forward(self, codes: Tensor) -> Tensor:
        return self.head(self.layers(self.characters(codes))[0])


class Patches(nn.Module):
    """A vision transformer: patches of four pixels, four pre-norm blocks of width 96."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.positions = nn.Parameter(torch.randn(1, 64, width) * 0.02)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(4)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            features = block(features)
        return self.head(self.norm(features).mean(1))


def diabetes(text: Path | None) -> tasks.Splits:  # noqa: ARG001
    """442 rows, a quantity to predict."""
    from sklearn.datasets import load_diabetes

    inputs, targets = load_diabetes(return_X_y=True)
    return tasks.three_parts(
        torch.from_numpy(inputs).float(), torch.from_numpy(targets).float().unsqueeze(1)
    )


FASHION = functools.partial(tasks.images, "fashion-mnist", 8_000, 0.125)
OTHERS = (
    tasks.Task(
        "diabetes", "Diabetes, perceptron 10-32-1", "r2", 16, 40, diabetes,
        lambda: tasks.perceptron(10, 32, 1),
    ),
    tasks.Task(
        "deep", "Fashion-MNIST, eight linear layers of width 64", "accuracy", 64, 5, FASHION,
        lambda: tasks.perceptron(784, *[64] * 7, 10),
    ),
    tasks.Task(
        "wide", "Fashion-MNIST, perceptron 784-1024-1024-10", "accuracy", 64, 5, FASHION,
        lambda: tasks.perceptron(784, 1024, 1024, 10),
    ),
    tasks.Task(
        "patches", "CIFAR-10, 4,000 images, vision transformer", "accuracy", 64, 5,
        functools.partial(tasks.images, "cifar10", 5_000, 0.2), Patches, is_image=True,
    ),
    tasks.Task(
        "recurrent", "Characters, two GRU layers", "loss", 32, 1, tasks.shakespeare, Recurrent
    ),
)  # fmt: skip


def score(spec: Spec, text: Path | None) -> float:
    record = run(spec, text)
    if "validation" not in record:
        raise RuntimeError(f"{spec}: {record['reason']}")
    return float(record["validation"]["metric"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=",".join(task.name for task in OTHERS))
    parser.add_argument(
        "--methods", default="self-tuned,self-tuned-anytime,schedule-free-adamw,prodigy"
    )
    parser.add_argument("--text", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tasks.TASKS.update({task.name: task for task in OTHERS})
    methods = options.methods.split(",")
    print("| task |", " | ".join(["AdamW, best of five rates", *methods]), "|")
    print("| --- |" + " --- |" * (1 + len(methods)))
    for name in options.tasks.split(","):
        task = tasks.TASKS[name]
        grid = {
            rate: score(Spec(name, "adamw-cosine", 0, lr=rate, is_search=True), options.text)
            for rate in RATES
        }
        best = (max if task.higher_is_better else min)(grid, key=grid.__getitem__)
        cells = [f"{grid[best]:.2f} ({best:g})"]
        for method in methods:
            lr = METHODS[method].lr
            scores = [
                score(Spec(name, method, seed, lr=lr, is_search=True), options.text)
                for seed in SEEDS
            ]
            cells.append(", ".join(f"{value:.2f}" for value in scores))
        print(f"| {task.title} ({task.metric}) |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
