"""A small classification task and a loop around it, for tests of whole runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annealtune.optim.self_tuner import SelfTuner

SAMPLES, FEATURES, CLASSES = 512, 6, 3


def make_task(seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
    """Make a net, inputs and the classes that a linear teacher gives them."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES))
        inputs = torch.randn(SAMPLES, FEATURES)
        return model, inputs, (inputs @ torch.randn(FEATURES, CLASSES)).argmax(1)


def adamw(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), **options)


def sgd(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})


BASES = [adamw, sgd]


@dataclass
class Run:
    """What is left of a run."""

    model: nn.Module
    optimizer: Any
    first: float  # the loss over all samples before it
    last: float  # and after it
    moved: bool  # whether the weights have changed

    @property
    def decisions(self) -> list[tuple[Any, ...]]:
        """What its races decided, without anything that has a unit."""
        return [(r.step, r.minibatches, r.winner, sorted(r.dropped)) for r in self.optimizer.races]


def plainly(loss: Tensor, step: int) -> Tensor:
    return loss


def train(
    make_base: Callable[..., torch.optim.Optimizer],
    change: Callable[[Tensor, int], Tensor] = plainly,
    *,
    steps: int = 400,
    batch: int = 32,
    seed: int = 0,
    tuned: bool = True,
    options: dict[str, Any] | None = None,
    forward: Callable[[nn.Module, Tensor, int], Tensor] | None = None,
    made: int | None = None,
    **settings: Any,
) -> Run:
    """Train the net by recorded losses.

    Args:
        make_base: makes the optimizer of a model.
        change: makes something else of the loss of a step.
        steps: how many are planned.
        batch: size of the minibatches.
        seed: of task and minibatches.
        tuned: whether a SelfTuner is put around the base.
        options: of the base.
        forward: computes the outputs, instead of calling the model.
        made: how many steps are made, if not as many as planned.
        settings: of the SelfTuner.
    """
    model, inputs, classes = make_task(seed)
    forward = forward or (lambda model, inputs, step: model(inputs))
    before = [p.detach().clone() for p in model.parameters()]
    first = F.cross_entropy(model(inputs), classes).item()
    optimizer: Any = make_base(model, **(options or {}))
    now = 0

    def compute_loss(x: Tensor, y: Tensor) -> Tensor:
        return change(F.cross_entropy(forward(model, x, now), y), now)

    if tuned:
        settings = {"model": model, "total_steps": steps, **settings}
        optimizer = SelfTuner(optimizer, **settings)
        compute_loss = optimizer.record(compute_loss)
    draws = torch.Generator().manual_seed(seed)
    for step in range(made or steps):
        now = step
        chosen = torch.randint(0, SAMPLES, (batch,), generator=draws)
        optimizer.zero_grad()
        compute_loss(inputs[chosen], classes[chosen]).backward()
        optimizer.step()
    with torch.no_grad():
        last = F.cross_entropy(model(inputs), classes).item()
    moved = any(not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    return Run(model, optimizer, first, last, moved)


class Remembering(nn.Module):
    """Keeps a mean of its outputs where torch does not look, or in a parameter that is frozen."""

    def __init__(self, kind):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        zeros = torch.zeros(2)
        self.mean = zeros if kind == "attribute" else nn.Parameter(zeros, requires_grad=False)

    def forward(self, x):
        out = self.layer(x) + 0.5 * self.mean
        with torch.no_grad():
            self.mean.copy_(out.mean(0))
        return out
