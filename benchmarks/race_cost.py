"""What SelfTuner costs beside its bare base: outside races, in a race, and in memory.

    python -m benchmarks.race_cost [--steps N] [--block N]

VGG16 at a quarter of its widths (batch 128) and a small GPT (batch 32, 64 characters) on random
data, AdamW and SGD with momentum, one thread. Base and tuner take turns in blocks of a few steps,
each with its own copy of the net, so that whatever else the machine does falls on both. Counted is
CPU time. Targets: at most 1.02 outside races, the average included; at most 1.10 a step of an arm
in a race. Memory: the bytes of all tensors that the tuner holds beside the base, in units of one
arm (weights, optimizer state, buffers) during a race and of the weights after it; targets: the
number of live arms, and 1. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, AdamW, Optimizer

from annealtune import SelfTuner
from annealtune.training.models import build
from annealtune.training.task import Task
from benchmarks.quality.tasks.text import SmallTransformer

OUTSIDE_TARGET, RACE_TARGET = 1.02, 1.10
BASES: dict[str, Callable[[nn.Module], Optimizer]] = {
    "AdamW": lambda net: AdamW(net.parameters()),
    "SGD, momentum 0.9": lambda net: SGD(net.parameters(), lr=0.01, momentum=0.9),
}


def convolutional() -> tuple[nn.Module, Tensor, Tensor]:
    """VGG16 at a quarter of its widths, and images that are noise."""
    net = build("vgg16-w4", Task.of_images(channels=3, image_size=(32, 32), classes=10))
    inputs = torch.randn(128, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    return net.to(memory_format=torch.channels_last), inputs, torch.randint(10, (128,))


def transformer() -> tuple[nn.Module, Tensor, Tensor]:
    """The language model of the quality benchmark, twice as wide, and text that is noise."""
    characters, window = 128, 64
    inputs = torch.randint(characters, (32, window))
    return SmallTransformer(characters, window, width=64), inputs, inputs.roll(-1, 1)


class Pair:
    """A net with its bare base, and a copy of both with a tuner around."""

    def __init__(self, name: str, base: str, steps: int) -> None:
        net, inputs, targets = {"vgg16-w4": convolutional, "small GPT": transformer}[name]()
        self._batch = (inputs, targets)
        self._nets = [net, copy.deepcopy(net)]
        self._bare = BASES[base](self._nets[0])
        tuned = BASES[base](self._nets[1])
        self.tuner = SelfTuner(tuned, model=self._nets[1], total_steps=steps)
        self._recorded = self.tuner.record(lambda: self._loss(self._nets[1]))

    def _loss(self, net: nn.Module) -> Tensor:
        inputs, targets = self._batch
        return functional.cross_entropy(net(inputs).flatten(0, -2), targets.flatten())

    def plain(self) -> int:
        """Make a step of the bare base."""
        self._loss(self._nets[0]).backward()
        self._bare.step()
        self._bare.zero_grad()
        return 1

    def tuned(self) -> int:
        """Make a step of the tuner; return how many arms made one."""
        race = self.tuner._race
        arms = 1 if race is None else len(race.standings.live)
        self._recorded().backward()
        self.tuner.step()
        self.tuner.zero_grad()
        return arms

    def held(self) -> int:
        """Return the bytes of the tensors that the tuner holds and the base does not."""
        own = {t.data_ptr() for t in _tensors(self.tuner.base.state_dict())}
        own |= {t.data_ptr() for t in (*self._nets[1].parameters(), *self._nets[1].buffers())}
        parts = (self.tuner._race, self.tuner._average)
        held = {t.data_ptr(): t.nbytes for part in parts for t in _reachable(part, set())}
        return sum(size for address, size in held.items() if address not in own)

    def weights(self) -> int:
        """Return the bytes of the weights."""
        return sum(p.nbytes for p in self._nets[1].parameters())

    def arm(self) -> int:
        """Return the bytes of one arm."""
        state = sum(t.nbytes for t in _tensors(self.tuner.base.state_dict()["state"]))
        return self.weights() + state + sum(b.nbytes for b in self._nets[1].buffers())


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _reachable(value: Any, seen: set[int]) -> Iterator[Tensor]:
    """Yield the tensors within our own objects, not those of the base and the model."""
    if id(value) in seen or isinstance(value, Optimizer | nn.Module):
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _reachable(item, seen)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _reachable(item, seen)
    elif type(value).__module__.startswith("annealtune.") and hasattr(value, "__dict__"):
        yield from _reachable(vars(value), seen)


def in_turns(first: Callable[[], int], second: Callable[[], int], steps: int, block: int) -> float:
    """Return the time of a step of the second over that of the first."""
    seconds, made = [0.0, 0.0], [0, 0]
    for number in range(math.ceil(steps / block)):
        order = (0, 1) if number % 2 else (1, 0)
        for index in order:
            step = (first, second)[index]
            started = process_time()
            made[index] += sum(step() for _ in range(block))
            seconds[index] += process_time() - started
    return (seconds[1] / made[1]) / (seconds[0] / made[0])


def measure(name: str, base: str, options: argparse.Namespace) -> bool:
    """Measure one net with one base; tell whether the targets hold."""
    pair = Pair(name, base, 4000)  # long enough for a race of many minibatches
    pair.plain()
    pair.tuned()  # the first one begins the race
    race = pair.tuner._race
    assert race is not None
    live = len(race.standings.live)
    in_race_memory = pair.held() / pair.arm()
    in_race = in_turns(pair.plain, pair.tuned, 12, 2)
    while pair.tuner.is_racing:
        pair.tuned()
    for _ in range(10):
        pair.plain()
        pair.tuned()
    outside = in_turns(pair.plain, pair.tuned, options.steps, options.block)
    after_memory = pair.held() / pair.weights()
    print(
        f"| {name} | {base} | {outside:.3f} | {in_race:.3f} | {in_race_memory:.2f} of {live} | "
        f"{after_memory:.2f} |",
        flush=True,
    )
    return (
        outside <= OUTSIDE_TARGET
        and in_race <= RACE_TARGET
        and in_race_memory <= live + 0.005
        and after_memory <= 1.005
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--block", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| net | base | outside races | a step of an arm | arms in memory | weights after it |")
    print("|---|---|---|---|---|---|")
    names = ("vgg16-w4", "small GPT")
    met = [measure(name, base, options) for name in names for base in BASES]
    print(f"\ntargets {OUTSIDE_TARGET}, {RACE_TARGET}: {'met' if all(met) else 'missed'}")
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
