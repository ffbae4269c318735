"""Bases with two groups, the ways to tell a tuner its minibatch, and runs to compare."""

import pytest
import torch

from annealtune import SelfTuner


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
def make_run(make_net, make_base, ways, loss_function):
    """Build a net, its tuner and the function that makes one step of the loop."""

    def make(kind="sgd", way="closure", **options):
        net = make_net()
        opt = SelfTuner(make_base(net, kind), net, **options)
        return net, opt, ways[way](opt, loss_function(net))

    return make
