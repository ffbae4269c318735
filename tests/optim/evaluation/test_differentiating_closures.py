"""Closures that differentiate by themselves, in any step: the probe computes what they compute."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import EmbeddedTuner, grid


def resting(net, **options):
    """A tuner whose steps move nothing, so that every worsening must be 0."""
    base = torch.optim.SGD(net.parameters(), lr=0.1)
    return EmbeddedTuner(base, model=net, neighborhood=grid(lr=[0.0]), temperature=1.0, **options)


def smooth_net():
    return nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))


def by_func(net, x):
    plain = nn.Sequential(net[0], net[1], net[3])
    slopes = torch.func.vmap(torch.func.grad(lambda z: plain(z).squeeze()))(x)
    return slopes.square().mean()


def by_jacrev(net, x):
    plain = nn.Sequential(net[0], net[1], net[3])
    return torch.func.jacrev(plain)(x[0]).square().mean()


def by_autograd(net, x):
    inputs = x.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(net(inputs).sum(), inputs, create_graph=True)
    return slopes.square().mean()


@pytest.mark.parametrize("penalty", [by_func, by_jacrev, by_autograd])
def test_a_penalty_that_comes_after_many_plain_steps(penalty):
    torch.manual_seed(0)
    net, x = smooth_net(), torch.rand(16, 1)
    tuner = resting(net)

    def loss(step):
        plain = (net(x) - 1).square().mean()
        return plain + penalty(net, x) if step >= 4 else plain

    for step in range(8):
        value = tuner.step(lambda: loss(step))  # noqa: B023
        assert tuner.last_step.worsening == 0, step
        if step >= 4:
            assert value > (net(x) - 1).square().mean()


def adversarial(net, tuner, x, y, *, backward, fresh):
    """FGSM: the inputs move along the sign of their gradient, which ``backward`` makes."""

    def closure():
        inputs = x.clone().requires_grad_() if fresh else x.requires_grad_()
        F.cross_entropy(net(inputs), y).backward()
        moved = (inputs + 0.1 * inputs.grad.sign()).detach()
        tuner.zero_grad()
        loss = F.cross_entropy(net(moved), y)
        if backward:
            loss.backward()
        return loss

    return closure


STYLES = pytest.mark.parametrize(
    ("backward", "fresh"), [(True, True), (True, False), (False, True), (False, False)]
)


@STYLES
def test_adversarial_training_by_backward(net, make_batches, backward, fresh):
    tuner = resting(net)
    for x, y in make_batches(5):
        tuner.step(adversarial(net, tuner, x, y, backward=backward, fresh=fresh))
        assert tuner.last_step.worsening == 0


@STYLES
def test_such_a_step_is_that_of_the_base(make_net, make_batches, bits, backward, fresh):
    nets = [make_net(), make_net()]
    base = torch.optim.SGD(nets[0].parameters(), lr=0.1)
    tuner = EmbeddedTuner(base, model=nets[0], neighborhood={"lr": [0.1]}, temperature=math.inf)
    plain = torch.optim.SGD(nets[1].parameters(), lr=0.1)
    for seed, (x, y) in enumerate(make_batches(3)):
        torch.manual_seed(seed)
        tuner.step(adversarial(nets[0], tuner, x.clone(), y, backward=backward, fresh=fresh))
        torch.manual_seed(seed)
        adversarial(nets[1], plain, x.clone(), y, backward=True, fresh=True)()
        plain.step()
        assert bits(nets[0].state_dict()) == bits(nets[1].state_dict())
