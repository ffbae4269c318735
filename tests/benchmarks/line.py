"""Small tasks, and what a method or a base needs."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.quality.tasks.task import Task, generator

# What must be installed for a method, or for a base.
PACKAGES = {
    "prodigy": "prodigyopt",
    "d-adaptation": "dadaptation",
    "schedule-free-adamw": "schedulefree",
    "schedule-free-sgd": "schedulefree",
    "dog": "dog",
    "mechanic": "mechanic_pytorch",
    "autolrs": "sklearn.gaussian_process",
    "lion": "pytorch_optimizer",
    "muon": "pytorch_optimizer",
}


def skip_without(name):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])


class Line(Task):
    """A line through noisy points, from zero, or from its minimum, where small rates do best."""

    steps = 120
    batch_size = 16
    multiples = (1.0, 1.0)
    is_learnt = False

    def load(self):
        source = generator(0)
        places = torch.rand(300, 1, generator=source) * 2 - 1
        values = 2 * places - 1 + 0.1 * torch.randn(300, 1, generator=source)
        self.inputs, self.test_inputs = places[:200], places[200:]
        self.targets, self.test_targets = values[:200], values[200:]
        self.losses = 0

    def build(self):
        network = nn.Linear(1, 1)
        nn.init.constant_(network.weight, 2.0 * self.is_learnt)
        nn.init.constant_(network.bias, -1.0 * self.is_learnt)
        return network

    def loss(self, network, minibatch):
        self.losses += 1
        self.trained = network
        return F.mse_loss(network(minibatch[0]), minibatch[1])

    def groups(self, network):
        if self.multiples == (1.0, 1.0):
            return super().groups(network)
        return list(zip(([network.weight], [network.bias]), self.multiples, strict=True))


class Uneven(Line):
    """The same, with a tenth of the rate for the bias."""

    multiples = (1.0, 0.1)


class Learnt(Line):
    is_learnt = True


class Breaking(Line):
    """The same, until its minibatches are no numbers any more."""

    def minibatch(self, index):
        inputs, targets = super().minibatch(index)
        return (inputs, targets) if index < 50 else (inputs * math.nan, targets)
