"""Stochastic line search, which has no maintained package to install: written from its paper."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

Closure = Callable[[], Tensor]

_C, _FACTOR, _GAMMA, _FIRST, _LARGEST = 0.1, 0.9, 2.0, 1.0, 10.0
_MOST_TRIES, _AFTER_THEM = 100, 1e-6


class StochasticLineSearch:
    """SGD whose step on each minibatch is shortened until it lowers the loss of that minibatch.

    A step is accepted when ``new <= loss - c * rate * |gradient|^2``; until then the rate is
    multiplied by 0.9. The next search begins at the rate found, enlarged so that it could double
    in an epoch. Dropout repeats its mask in every try. Where groups have different multiples of
    the rate, the square is that of the gradient times the step it leads to.

    Args:
        model: what is trained.
        groups: its parameters, and their multiple of the rate.
        steps_per_epoch: minibatches in an epoch.
        tries_left: tells how many tries can be paid; after 100, or with none left, the step is
            made at a rate of 1e-6.

    Reference:
        Vaswani et al., *Painless stochastic gradient: interpolation, line-search, and convergence
        rates* (2019), Algorithms 1 and 2. The numbers are those of the authors' program,
        https://github.com/IssamLaradji/sls: c = 0.1, factor 0.9, gamma = 2, first rate 1, at
        most 10.
    """

    def __init__(
        self,
        model: nn.Module,
        groups: list[tuple[list[nn.Parameter], float]],
        steps_per_epoch: int,
        tries_left: Callable[[], int],
    ) -> None:
        self.model = model
        self.rate = _FIRST
        self._groups = groups
        self._growth = _GAMMA ** (1 / steps_per_epoch)
        self._tries_left = tries_left

    def step(self, closure: Closure) -> float:
        """Make a step, if the loss is finite; return the loss before it."""
        self.model.zero_grad()
        noise = torch.get_rng_state()
        loss = closure()
        value = loss.item()
        if not math.isfinite(value):
            return value
        loss.backward()
        moved = [
            (p, p.detach().clone(), multiple)
            for parameters, multiple in self._groups
            for p in parameters
            if p.grad is not None
        ]
        slope = sum(multiple * float(p.grad.norm()) ** 2 for p, _, multiple in moved)
        self.rate = min(self.rate * self._growth, _LARGEST)
        with _frozen_statistics(self.model):
            for _ in range(min(_MOST_TRIES, self._tries_left())):
                _move(moved, self.rate)
                torch.set_rng_state(noise)
                if closure().item() <= value - _C * self.rate * slope:
                    break
                self.rate *= _FACTOR
            else:
                _move(moved, _AFTER_THEM)
        return value


@torch.no_grad()
def _move(moved: list[tuple[nn.Parameter, Tensor, float]], rate: float) -> None:
    for p, old, multiple in moved:
        torch.add(old, p.grad, alpha=-rate * multiple, out=p)


@contextlib.contextmanager
def _frozen_statistics(model: nn.Module) -> Iterator[None]:
    """Let a further forward on the same minibatch leave BatchNorm's running statistics alone."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    tracking = [norm.track_running_stats for norm in norms]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm, was_tracking in zip(norms, tracking, strict=True):
            norm.track_running_stats = was_tracking
