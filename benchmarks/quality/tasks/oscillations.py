"""A task in which a net is a function of time: an oscillator that comes to rest."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn

from .task import SPARE, Part, Task, generator, perceptron


class Oscillator(Task):
    """A net that solves u'' + 2 d u' + w^2 u = 0; tested by its relative L2 error.

    On the unit interval, let go at rest from 1; the solution is known.

    Attributes:
        damping, frequency: d and w.
    """

    steps = 1500
    damping, frequency = 2.0, 10.0

    def load(self) -> None:
        self.test_inputs = torch.rand(1000, 1, generator=generator(83))
        damped = math.sqrt(self.frequency**2 - self.damping**2)
        angles = damped * self.test_inputs
        waves = torch.cos(angles) + self.damping / damped * torch.sin(angles)
        self.test_targets = torch.exp(-self.damping * self.test_inputs) * waves

    @functools.cached_property
    def times(self) -> Tensor:
        """Times of every minibatch."""
        shape = (self.steps + SPARE, self.batch_size, 1)
        return torch.rand(shape, generator=generator(2000 + self.seed))

    def rows(self) -> int:
        """Return the times of a run, which never come twice: it is one epoch."""
        return self.steps * self.batch_size

    def minibatch(self, index: int) -> Tensor:
        self.begin_noise(index)
        return self.times[index]

    def build(self) -> nn.Module:
        return perceptron(1, 32, 32, 32, 1, activation=nn.Tanh)

    def loss(self, network: nn.Module, minibatch: Tensor) -> Tensor:
        # The first time is the start.
        times = torch.cat([torch.zeros(1, 1), minibatch]).requires_grad_()
        values = network(times)
        (slopes,) = torch.autograd.grad(values.sum(), times, create_graph=True)
        (bends,) = torch.autograd.grad(slopes.sum(), times, create_graph=True)
        forces = bends + 2 * self.damping * slopes + self.frequency**2 * values
        residual = (forces / self.frequency**2).square().mean()
        wrong_start = (values[0] - 1).square() + (slopes[0] / self.frequency).square()
        return residual + wrong_start.sum()

    @torch.no_grad()
    def score(self, network: nn.Module, part: Part) -> float:
        inputs, targets = self.held_out(part)
        error = (network(inputs) - targets).square().mean()
        return float((error / targets.square().mean()).sqrt())
