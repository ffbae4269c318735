"""What `SelfTuner` costs beside its bare base optimizer, between its races and with them.

    python -m benchmarks.default_cost [--steps N] [--block N]

VGG16 at a quarter of its widths (batch 128) and a small GPT (batch 32, 64 characters) on random
data, AdamW and SGD with momentum, one thread. Base and tuner take turns in blocks of a few steps,
each with its own copy of the net, so that whatever else the machine does falls on both. Counted is
CPU time, over all steps and after the first race. The ratio of the totals after it must not exceed
1.05. Exits with 1 if one does.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
from collections.abc import Callable
from time import process_time

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, AdamW, Optimizer

from annealtune import SelfTuner
from annealtune.training.models import build
from benchmarks.quality.tasks import CHARACTERS, CONTEXT, CharacterTransformer

TARGET = 1.05
RACE = 100  # steps in which the first race takes place
BASES: dict[str, Callable[[nn.Module], Optimizer]] = {
    "AdamW": lambda net: AdamW(net.parameters()),
    "SGD, momentum 0.9": lambda net: SGD(net.parameters(), lr=0.01, momentum=0.9),
}


def convolutional() -> tuple[nn.Module, Callable[[], tuple[Tensor, Tensor]]]:
    """VGG16 at a quarter of its widths, and images that are noise."""
    net = build("vgg16-w4", channels=3, image_size=(32, 32), classes=10)
    inputs = torch.randn(128, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    targets = torch.randint(10, (128,))
    return net.to(memory_format=torch.channels_last), lambda: (inputs, targets)


def transformer() -> tuple[nn.Module, Callable[[], tuple[Tensor, Tensor]]]:
    """The language model of the quality benchmark, and text that is noise."""
    inputs = torch.randint(CHARACTERS, (32, CONTEXT))
    return CharacterTransformer(), lambda: (inputs, inputs.roll(-1, 1))


def measure(name: str, base: str, options: argparse.Namespace) -> float:
    """Time both in turns and return the ratio of the totals."""
    net, batch = {"vgg16-w4": convolutional, "small GPT": transformer}[name]()
    nets = [net, copy.deepcopy(net)]
    bare = BASES[base](nets[0])
    tuner = SelfTuner(BASES[base](nets[1]), model=nets[1], total_steps=RACE + options.steps)

    def loss_of(net: nn.Module) -> Tensor:
        inputs, targets = batch()
        scores = net(inputs)
        return functional.cross_entropy(scores.flatten(0, -2), targets.flatten())

    def plain() -> None:
        bare.zero_grad()
        loss_of(nets[0]).backward()
        bare.step()

    def ours() -> None:
        tuner.step(lambda: loss_of(nets[1]))

    blocks: list[tuple[float, float]] = []
    for block in range(math.ceil((RACE + options.steps) / options.block)):
        spent = [0.0, 0.0]
        for index, step in ((0, plain), (1, ours)) if block % 2 else ((1, ours), (0, plain)):
            started = process_time()
            for _ in range(options.block):
                step()
            spent[index] = process_time() - started
        blocks.append((spent[0], spent[1]))
    after = blocks[math.ceil(RACE / options.block) :]
    whole, late = (sum(b for _, b in part) / sum(a for a, _ in part) for part in (blocks, after))
    milliseconds = 1000 * sum(a for a, _ in blocks) / (len(blocks) * options.block)
    print(f"| {name} | {base} | {milliseconds:.1f} | {whole:.3f} | {late:.3f} |", flush=True)
    return late


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--block", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| net | base | base, ms a step | tuner / base | after the first race |")
    print("|---|---|---|---|---|")
    names = ("vgg16-w4", "small GPT")
    worst = max(measure(name, base, options) for name in names for base in BASES)
    print(f"\nworst ratio {worst:.3f}, target at most {TARGET}")
    sys.exit(worst > TARGET)


if __name__ == "__main__":
    main()
