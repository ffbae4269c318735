"""What a step costs beside plain SGD: time, bookkeeping, memory.

    python benchmarks/step_cost.py [--quick] [--rounds N]

VGG16 at a quarter of its widths and a 3-layer MLP, batch 128 and 512, random data, one thread. All
methods take turns within one run, each with its own copy of the net, in an order that is shuffled
every round. Times are CPU time, which leaves out what other programs take of a core. A cost is a
ratio of medians over the rounds; beside it stand the quartiles of the ratios within a round.
Exits with 1 if a target for time is missed on the convolutional net: a step of Algorithm 2 as in
the paper's text costs at most 1.36 plain ones, which is what a forward more costs.
"""

from __future__ import annotations

import argparse
import copy
import functools
import gc
import itertools
import math
import os
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any
from unittest import mock

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler reports its start and stop

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, AdamW, Optimizer
from torch.profiler import ProfilerActivity, profile, record_function

from annealtune import SGDSA, EmbeddedTuner
from annealtune.annealing import PAPER_RATES, SimulatedAnnealing, Verdict
from annealtune.temperatures import Automatic
from annealtune.training.models import build
from annealtune.training.task import Task as Learning

COST_TARGET, BOOKKEEPING_TARGET = 1.36, 0.05
Step = Callable[[], object]


class Task:
    """A net, its minibatches, and a stopwatch that runs during forward and backward only."""

    def __init__(self, net: nn.Module, shape: tuple[int, ...], batch: int) -> None:
        layout = torch.channels_last if len(shape) == 3 else torch.contiguous_format
        self.net = copy.deepcopy(net).to(memory_format=layout)
        generator = torch.Generator().manual_seed(0)
        inputs = [torch.randn(batch, *shape, generator=generator) for _ in range(2)]
        targets = [torch.randint(10, (batch,), generator=generator) for _ in inputs]
        inputs = [x.contiguous(memory_format=layout) for x in inputs]
        self.batches = itertools.cycle(zip(inputs, targets, strict=True))
        self.batch_size = batch

    def loss(self) -> Tensor:
        start = process_time()
        loss = functional.cross_entropy(self.net(self.inputs), self.targets)
        self.model_seconds += process_time() - start
        return loss

    def run(self, step: Step, samples: int | None = None) -> tuple[float, float]:
        """Time one step; return all of it, and what of it is neither forward nor backward."""
        self.inputs, self.targets = (part[:samples] for part in next(self.batches))
        self.model_seconds = 0.0
        backward = Tensor.backward

        def timed_backward(loss: Tensor) -> None:
            start = process_time()
            backward(loss)
            self.model_seconds += process_time() - start

        with mock.patch.object(Tensor, "backward", timed_backward):
            start = process_time()
            step()
            seconds = process_time() - start
        return seconds, seconds - self.model_seconds

    def warm_up(self, step: Step) -> None:
        """Try every setting, on few samples: the first try of each costs a copy of the gradient."""
        for samples in [8] * 100 + [self.batch_size] * 2:
            self.run(step, samples)


def plain(task: Task, optimizer: Optimizer, forwards: int = 0, late: bool = False) -> None:
    """A step of torch's own optimizer, with ``late`` resetting gradients after the forward."""
    if not late:
        optimizer.zero_grad()
    loss = task.loss()
    if late:
        optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for _ in range(forwards):
        with torch.no_grad():
            task.loss().item()


def ours(task: Task, tuner: EmbeddedTuner) -> None:
    tuner.step(task.loss)


def authors_procedure(task: Task, rates: Sequence[float], rng: random.Random) -> None:
    """A training step by hand between two losses in evaluation mode, undone by arithmetic.

    Written from a description of the published program: three forwards, each with its graph.
    """
    net, temperature = task.net, 1.0
    net.eval()
    old = task.loss().item() / task.batch_size
    net.train()
    net.zero_grad()
    task.loss().backward()
    rate = rng.choice(rates)
    for p in net.parameters():
        p.data -= rate * p.grad
    net.eval()
    worsening = task.loss().item() / task.batch_size - old
    if worsening > 0 and rng.random() > math.exp(-worsening / temperature):
        for p in net.parameters():
            p.data += rate * p.grad


def sam(task: Task, optimizer: Optimizer, radius: float = 0.05) -> None:
    """Sharpness-aware minimization: the gradient of the worst point nearby, two backwards."""
    parameters = optimizer.param_groups[0]["params"]
    optimizer.zero_grad()
    task.loss().backward()
    with torch.no_grad():
        norm = nn.utils.get_total_norm([p.grad for p in parameters])
        climbs = [p.grad * (radius / (norm + 1e-12)) for p in parameters]
        torch._foreach_add_(parameters, climbs)
    optimizer.zero_grad()
    task.loss().backward()
    with torch.no_grad():
        torch._foreach_sub_(parameters, climbs)
    optimizer.step()


def sgd(task: Task, momentum: float = 0.0) -> SGD:
    return SGD(task.net.parameters(), lr=0.05, momentum=momentum)


class Refusal(SimulatedAnnealing):
    """Undo every step."""

    def decide(self, value: float, new_value: float, rng: random.Random) -> Verdict:
        return super().decide(value, new_value, rng)._replace(accepted=False)


def paper_code(task: Task) -> SGDSA:
    return SGDSA(task.net, preset="paper-code", batch_size=task.batch_size)


OURS = "SGDSA, paper-text"
# What makes one step, and all that it is called with besides the task.
METHODS: dict[str, tuple[Callable[..., None], Callable[[Task], tuple[Any, ...]]]] = {
    "SGD": (plain, lambda t: (sgd(t),)),
    "SGD, zero_grad after the forward": (plain, lambda t: (sgd(t), 0, True)),
    "SGD and a forward without gradients": (plain, lambda t: (sgd(t), 1)),
    OURS: (ours, lambda t: (SGDSA(t.net, preset="paper-text"),)),
    "SGDSA, step(closure)": (ours, lambda t: (SGDSA(t.net, temperature=Automatic()),)),
    "SGDSA, every step undone": (ours, lambda t: (SGDSA(t.net, strategy=Refusal(0.0)),)),
    "SGDSA, paper-code": (ours, lambda t: (paper_code(t),)),
    "the authors' procedure": (authors_procedure, lambda _: (PAPER_RATES, random.Random(0))),
    "SAM": (sam, lambda t: (sgd(t),)),
    "SGD, momentum": (plain, lambda t: (sgd(t, 0.9),)),
    "EmbeddedTuner(SGD, momentum)": (
        ours,
        lambda t: (EmbeddedTuner(sgd(t, 0.9), model=t.net, temperature=Automatic()),),
    ),
    "AdamW": (plain, lambda t: (AdamW(t.net.parameters()),)),
    "EmbeddedTuner(AdamW)": (
        ours,
        lambda t: (EmbeddedTuner(AdamW(t.net.parameters()), model=t.net, temperature=Automatic()),),
    ),
}


def make_step(name: str, task: Task) -> Step:
    step, arguments = METHODS[name]
    return functools.partial(step, task, *arguments(task))


def compared_with(name: str) -> str:
    return next((base for base in ("AdamW", "SGD, momentum") if base in name), "SGD")


def measure_time(make_task: Callable[[], Task], rounds: int, steps: int) -> bool:
    """Print the times of one net and batch size; tell whether the targets are met."""
    runners = {}
    for name in METHODS:
        task = make_task()
        runners[name] = task, make_step(name, task)
        task.warm_up(runners[name][1])
    times: dict[str, list[float]] = {name: [] for name in runners}
    rests: dict[str, list[float]] = {name: [] for name in runners}
    rng = random.Random(0)
    for _ in range(rounds):
        for name in rng.sample(list(runners), len(runners)):
            task, step = runners[name]
            totals, outside = zip(*(task.run(step) for _ in range(steps)), strict=True)
            times[name].append(statistics.mean(totals))
            rests[name].append(statistics.mean(outside))

    time_of = {name: statistics.median(values) for name, values in times.items()}
    rest_of = {name: statistics.median(values) for name, values in rests.items()}
    print("| step | ms | ratio | quartiles | bookkeeping | of it added |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in METHODS:
        base = compared_with(name)
        pairs = zip(times[name], times[base], strict=True)
        low, _, high = statistics.quantiles([mine / theirs for mine, theirs in pairs], n=4)
        share = rest_of[name] / time_of[base]
        added = (rest_of[name] - rest_of[base]) / time_of[base]
        print(
            f"| {name} | {1e3 * time_of[name]:.2f} | {time_of[name] / time_of[base]:.2f} | "
            f"{low:.2f}-{high:.2f} | {share:.1%} | {added:.1%} |"
        )
    ratio, share = (of[OURS] / time_of["SGD"] for of in (time_of, rest_of))
    return ratio <= COST_TARGET and share <= BOOKKEEPING_TARGET


def peak_bytes(name: str, task: Task) -> tuple[int, int]:
    """Peak memory since before the optimizer was made: of the first steps, of later ones."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step = make_step(name, task)
        for _ in range(5):
            task.run(step)
        task.warm_up(step)
        with record_function("later"):
            for _ in range(3):
                task.run(step)
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda e: e.start_ns())
    later = next(i for i, event in enumerate(events) if event.name() == "later")
    live = list(itertools.accumulate(event.nbytes() for event in events))
    return max(live[:later]), max(live[later:])


def measure_memory(make_task: Callable[[], Task]) -> None:
    """Print the peak memory of a step, and how much it is above the one compared with."""
    weights = sum(p.numel() * p.element_size() for p in make_task().net.parameters())
    peaks = {name: peak_bytes(name, make_task()) for name in METHODS}
    print(f"| step | peak MiB | extra, in weights ({weights / 2**20:.1f} MiB) | at first |")
    print("|---|--:|--:|--:|")
    for name in METHODS:
        first, later = (peaks[name][i] - peaks[compared_with(name)][i] for i in range(2))
        print(
            f"| {name} | {peaks[name][1] / 2**20:.1f} | {later / weights:.2f} | "
            f"{first / weights:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 rounds, batch 128 only")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread")
    vgg = build("vgg16-w4", Learning.of_images(channels=3, image_size=(32, 32), classes=10))
    hidden = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU()]
    mlp = nn.Sequential(*hidden, nn.Linear(256, 10))
    nets = [("vgg16-w4", vgg, (3, 32, 32), 1), ("MLP 784-512-256-10", mlp, (784,), 20)]
    met = True
    for label, net, shape, steps in nets:
        for batch in (128,) if options.quick else (128, 512):
            make_task = functools.partial(Task, net, shape, batch)
            print(f"\n{label}, batch {batch}: time\n", flush=True)
            fits = measure_time(make_task, 5 if options.quick else options.rounds, steps)
            met = met and (fits or net is mlp)
            if batch == 128:
                print(f"\n{label}, batch {batch}: memory\n", flush=True)
                measure_memory(make_task)
    if not met:
        sys.exit(f"target missed: ratio {COST_TARGET}, bookkeeping {BOOKKEEPING_TARGET:.0%}")


if __name__ == "__main__":
    main()
