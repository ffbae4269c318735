"""Stochastic line search: every try is paid, every step goes down."""

import pytest
import torch
from torch.nn import functional as F

from benchmarks.quality import peers
from benchmarks.quality.line_search import StochasticLineSearch
from benchmarks.quality.tasks.task import Sources
from tests.benchmarks.line import Line


class Counted(Line):
    """The same; it counts how often it is scored."""

    looks = 0

    def score(self, network, part):
        self.looks += 1
        return super().score(network, part)


def test_a_try_costs_a_third():
    task = Counted(Sources())
    record = peers.line_search(task)
    tries = task.losses - task.looks - record["minibatches"]
    assert tries >= record["minibatches"]
    assert record["cost"] == pytest.approx(record["minibatches"] + tries / 3, abs=1e-2)


def test_a_step_goes_down():
    network = Line(Sources()).network()
    search = StochasticLineSearch(
        network, [([network.weight, network.bias], 1.0)], 10, tries_left=lambda: 100
    )
    inputs = torch.linspace(-1, 1, 9)[:, None]
    losses = [search.step(lambda: F.mse_loss(network(inputs), 2 * inputs - 1)) for _ in range(20)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.1 * losses[0]


def test_groups_keep_their_ratio():
    moved = []
    for multiple in (1.0, 0.1):
        network = Line(Sources()).network()
        groups = [([network.weight], 1.0), ([network.bias], multiple)]
        search = StochasticLineSearch(network, groups, 10, tries_left=lambda: 100)
        search.step(lambda net=network: F.mse_loss(net(torch.ones(4, 1)), torch.ones(4, 1)))
        moved.append(network.bias.item() / network.weight.item())
    assert moved == pytest.approx([1.0, 0.1])


def test_with_no_try_left_it_hardly_moves():
    network = Line(Sources()).network()
    search = StochasticLineSearch(
        network, [([network.weight, network.bias], 1.0)], 10, tries_left=lambda: 0
    )
    search.step(lambda: F.mse_loss(network(torch.ones(4, 1)), torch.ones(4, 1)))
    assert 0 < network.bias.item() < 1e-5
