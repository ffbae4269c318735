"""Two peers that have no maintained package to install, written from their papers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

Closure = Callable[[], Tensor]


@contextlib.contextmanager
def frozen_statistics(model: nn.Module) -> Iterator[None]:
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


class SAM:
    """Sharpness-aware minimization over any optimizer: two forwards and two backwards a step.

    The gradient is taken where the loss is highest within a ball of radius ``rho``, to first order,
    and used at the weights themselves. BatchNorm counts the first forward alone.

    Reference:
        Foret, Kleiner, Mobahi and Neyshabur, *Sharpness-aware minimization for efficiently
        improving generalization* (2021), Algorithm 1; rho = 0.05 is their default.
    """

    def __init__(self, model: nn.Module, base: Optimizer, rho: float = 0.05) -> None:
        self.model, self.base, self.rho = model, base, rho

    def step(self, closure: Closure) -> Tensor:
        parameters = list(self.model.parameters())
        self.base.zero_grad()
        loss = closure()
        loss.backward()
        with torch.no_grad():
            before = [p.clone() for p in parameters]
            scale = self.rho / (nn.utils.get_total_norm(p.grad for p in parameters) + 1e-12)
            for p in parameters:
                p.add_(p.grad * scale)
        self.base.zero_grad()
        with frozen_statistics(self.model):
            closure().backward()
        with torch.no_grad():
            for p, old in zip(parameters, before, strict=True):
                p.copy_(old)
        self.base.step()
        return loss.detach()


class StochasticLineSearch:
    """SGD whose step on each minibatch is shortened until it lowers the loss of that minibatch.

    A step is accepted when ``new <= loss - c * rate * |gradient|^2``; until then the rate is
    multiplied by 0.9. The next search begins at the rate found, enlarged so that it could double
    in an epoch. Dropout repeats its mask in every try.

    Args:
        model: what is trained.
        steps_per_epoch: minibatches in an epoch.
        forwards_left: tells how many tries can be paid; after 100, or with none left, the step is
            made at a rate of 1e-6.

    Reference:
        Vaswani et al., *Painless stochastic gradient: interpolation, line-search, and convergence
        rates* (2019), Algorithms 1 and 2. The numbers are those of the authors' program,
        https://github.com/IssamLaradji/sls: c = 0.1, factor 0.9, gamma = 2, first rate 1, at
        most 10.
    """

    def __init__(
        self, model: nn.Module, steps_per_epoch: int, forwards_left: Callable[[], float]
    ) -> None:
        self.model = model
        self.rate = 1.0
        self.growth = 2.0 ** (1 / steps_per_epoch)
        self.forwards_left = forwards_left

    def step(self, closure: Closure) -> Tensor:
        parameters = list(self.model.parameters())
        self.model.zero_grad()
        noise = torch.get_rng_state()
        loss = closure()
        loss.backward()
        after = torch.get_rng_state()
        with torch.no_grad(), frozen_statistics(self.model):
            before = [p.clone() for p in parameters]
            slope = float(nn.utils.get_total_norm(p.grad for p in parameters)) ** 2
            self.rate = min(self.rate * self.growth, 10.0)
            for _ in range(int(min(100, self.forwards_left()))):
                self._move(parameters, before, self.rate)
                torch.set_rng_state(noise)
                if closure().item() <= loss.item() - 0.1 * self.rate * slope:
                    break
                self.rate *= 0.9
            else:
                self._move(parameters, before, 1e-6)
        torch.set_rng_state(after)
        return loss.detach()

    @staticmethod
    def _move(parameters: list[nn.Parameter], before: list[Tensor], rate: float) -> None:
        for p, old in zip(parameters, before, strict=True):
            torch.add(old, p.grad, alpha=-rate, out=p)
