"""Temperatures that cool per epoch: one epoch, and a loop that never tells of any."""

import pytest
import torch
from torch import nn

from annealtune import SGDSA, StochasticSA, grid
from annealtune.temperatures import Automatic, Geometric

H = grid(lr=[0.1, 0.05])
PER_EPOCH = {
    "as README prints it": lambda net: SGDSA(net, preset="paper-text"),
    "geometric": lambda net: SGDSA(net, H, temperature=Geometric(1.0, 0.8)),
    "automatic": lambda net: SGDSA(net, H, temperature=Automatic(length=9)),
    "without gradients": lambda net: StochasticSA(net, preset="paper-text"),
}


def train(optimizer, net, steps):
    for _ in range(steps):
        optimizer.step(lambda: net(torch.ones(1, 1)).square().sum())


@pytest.fixture
def net():
    return nn.Linear(1, 1)


@pytest.mark.parametrize("make", PER_EPOCH.values(), ids=PER_EPOCH)
def test_one_that_never_hears_of_an_epoch_warns_once(make, net):
    optimizer = make(net)
    train(optimizer, net, 999)
    with pytest.warns(UserWarning, match="cool"):
        train(optimizer, net, 1)
    train(optimizer, net, 30)  # a second warning would be an error


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"total_steps": 50},
        {"temperature": 1.0},
        {"temperature": Geometric(1, 0.9, per="step")},
        {"epochs": 5},  # waits longer
    ],
)
def test_others_do_not(options, net):
    train(SGDSA(net, H, **options), net, 1010)


def test_nor_one_that_has_heard_of_an_epoch_also_before_a_resume(net):
    tuner, resumed = (SGDSA(net, H, preset="paper-text") for _ in range(2))
    train(tuner, net, 998)
    tuner.cool()
    resumed.load_state_dict(tuner.state_dict())
    train(tuner, net, 10)
    train(resumed, net, 10)


def test_a_single_epoch_cools_all_the_same(make_net, batch):
    """Nothing ends before the run does, so the temperature must fall by the steps."""
    net, (x, y) = make_net(), batch
    tuner = SGDSA(net, H, epochs=1)
    temperatures = []
    for _ in range(200):
        tuner.step(lambda: nn.functional.cross_entropy(net(x), y))
        temperatures.append(tuner.last_step.temperature)
    unit = tuner.strategy.schedule.unit
    assert temperatures[40] > 2 * unit
    assert temperatures[-1] == pytest.approx(3 * unit / (1 + (199 - 31) / 32))
