"""Bases with two groups, the ways to tell a tuner its minibatch, and runs to compare."""

import copy

import pytest
import torch
from torch.nn import functional as F

from annealtune import SelfTuner


def _loss_of(net):
    """The function that a user writes: the loss of one minibatch."""
    return lambda x, y: F.cross_entropy(net(x).float(), y)


def _by_closure(opt, loss_of):
    return lambda x, y: opt.step(lambda: loss_of(x, y))


def _by_closure_with_backward(opt, loss_of):
    def step(x, y):
        def closure():
            opt.zero_grad()
            loss = loss_of(x, y)
            loss.backward()
            return loss

        return opt.step(closure)

    return step


def _by_loss_and_probe(opt, loss_of):
    def step(x, y):
        opt.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        return opt.step(loss=loss, probe=lambda: loss_of(x, y))

    return step


def _by_record(opt, loss_of):
    compute_loss = opt.record(loss_of)

    def step(x, y):
        compute_loss(x, y).backward()
        loss = opt.step()
        opt.zero_grad()
        return loss

    return step


_WAYS = {
    "closure": _by_closure,
    "closure with backward": _by_closure_with_backward,
    "loss and probe": _by_loss_and_probe,
    "record": _by_record,
}


@pytest.fixture(params=_WAYS)
def way(request):
    """Make the function that does one step of a user's loop, in each of the ways."""
    return _WAYS[request.param]


@pytest.fixture(scope="session")
def ways():
    return _WAYS


@pytest.fixture(scope="session")
def loss_function():
    return _loss_of


@pytest.fixture(scope="session")
def make_base():
    """Build an optimizer of two groups, the second at a tenth of the rate of the first."""

    def make(net, kind: str) -> torch.optim.Optimizer:
        body = [*net.first.parameters(), *net.norm.parameters()]
        groups = [{"params": body}, {"params": list(net.last.parameters()), "lr": 0.01}]
        if kind == "sgd":
            return torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)
        return torch.optim.AdamW(groups, lr=0.1, weight_decay=0.05)

    return make


@pytest.fixture(params=["sgd", "adamw"])
def kind(request):
    return request.param


@pytest.fixture(scope="session")
def trained(picture):
    """Return what a run leaves, bit for bit; gradients belong to whichever arm came last."""

    def make(model, optimizer):
        return {key: item for key, item in picture(model, optimizer).items() if key != "gradients"}

    return make


@pytest.fixture(scope="session")
def plain_steps():
    """Train by hand: the given rate in the first group, a tenth of it in the second."""

    def train(net, base, batches, rates):
        loss_of = _loss_of(net)
        for (x, y), rate in zip(batches, rates, strict=True):
            base.zero_grad()
            loss_of(x, y).backward()
            for group, ratio in zip(base.param_groups, (1.0, 0.01 / 0.1), strict=True):
                group["lr"] = rate * ratio
            base.step()

    return train


@pytest.fixture(scope="session")
def race_through():
    """Make steps until no race is on any more; return how many that were."""

    def train(opt, step, batches):
        for count, (x, y) in enumerate(batches, start=1):
            step(x, y)
            if not opt.is_racing:
                return count
        raise AssertionError(f"still racing after {len(batches)} minibatches")

    return train


@pytest.fixture
def make_run(make_net, make_base):
    """Build a net, its tuner and the function that makes one step of the loop."""

    def make(kind="sgd", way="closure", **options):
        net = make_net()
        opt = SelfTuner(make_base(net, kind), model=net, **options)
        return net, opt, _WAYS[way](opt, _loss_of(net))

    return make


@pytest.fixture(scope="session")
def twins():
    """Copy a model and its optimizer together."""
    return lambda *pair: copy.deepcopy(pair)
