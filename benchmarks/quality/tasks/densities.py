"""A task in which a net is to say how likely each value is, where several are right."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, Normal

from .task import Part, Task, generator, perceptron


class MixtureDensity(Task):
    """Bishop's inverse problem: up to three values fit a place; a mixture of five normals.

    Tested by the negative logarithm of the likelihood, plus 1 so that it is above 0.
    """

    steps = 1500
    components = 5

    def load(self) -> None:
        source = generator(81)
        values = torch.rand(4000, generator=source)
        noise = 0.1 * torch.randn(4000, generator=source)
        places = values + 0.3 * torch.sin(2 * math.pi * values) + noise
        inputs = ((places - places.mean()) / places.std())[:, None]
        targets = (values - values.mean()) / values.std()
        self.inputs, self.test_inputs = inputs[:2000], inputs[2000:]
        self.targets, self.test_targets = targets[:2000], targets[2000:]

    def build(self) -> nn.Module:
        return perceptron(1, 64, 64, 3 * self.components, activation=nn.Tanh)

    def loss(self, network: nn.Module, minibatch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = minibatch
        weights, means, deviations = network(inputs).chunk(3, dim=1)
        # Unchecked: a net that has diverged is to have a loss that is not finite.
        mixture = MixtureSameFamily(
            Categorical(logits=weights, validate_args=False),
            Normal(means, deviations.exp(), validate_args=False),
            validate_args=False,
        )
        return -mixture.log_prob(targets).mean()

    def score(self, network: nn.Module, part: Part) -> float:
        return super().score(network, part) + 1
