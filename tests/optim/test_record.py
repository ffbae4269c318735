"""`record` and a bare ``step()`` for the optimizers that accept or undo steps."""

import pytest
import torch
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, StochasticSA, grid

STEPS = 60
RATES = grid(lr=[30.0, 3.0, 0.3, 0.1])


def tuner(net):
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
    return EmbeddedTuner(base, net, neighborhood=RATES, total_steps=STEPS, seed=5)


@pytest.fixture
def assert_same(make_net, make_batches, bits, ways, loss_function):
    """Compare runs with two loops: weights, buffers, counts, verdicts of both kinds."""

    def trained(make, loop):
        net = make_net()
        optimizer = make(net)
        torch.manual_seed(6)
        step = (
            ways[loop](optimizer, loss_function(net))
            if isinstance(loop, str)
            else loop(net, optimizer)
        )
        for x, y in make_batches(STEPS):
            step(x, y)
        total = optimizer.moves.total
        assert 0 < total.accepted < total.tried == STEPS
        return bits(net.state_dict()), optimizer.moves

    def assert_same(one, other, make=tuner):
        assert trained(make, one) == trained(make, other)

    return assert_same


def as_published(net):
    return SGDSA(net, RATES, preset="paper-code", batch_size=16, temperature=0.01, seed=5)


@pytest.mark.parametrize("make", [tuner, as_published])
def test_the_same_run_as_with_a_closure(assert_same, make):
    assert_same("closure", "record", make)


def test_without_gradients(assert_same):
    def make(net):
        return StochasticSA(net, radius=0.05, total_steps=STEPS, seed=5)

    def without_backward(net, opt):
        compute_loss = opt.record(lambda x, y: F.cross_entropy(net(x), y))

        def step(x, y):
            compute_loss(x, y)
            opt.step()

        return step

    assert_same("closure", without_backward, make)


def test_calls_without_gradients_and_nested_ones_do_not_count(assert_same):
    def noisy(net, opt):
        inner = opt.record(lambda x, y: F.cross_entropy(net(x), y))
        outer = opt.record(lambda x, y: inner(x, y))

        def step(x, y):
            net.eval()
            with torch.no_grad():
                inner(x[:4], y[:4])
            net.train()
            loss = outer(x, y)
            opt.zero_grad()  # between forward and backward, as many loops do
            loss.backward()
            opt.step()

        return step

    assert_same("record", noisy)


def test_a_function_may_return_a_dict_with_the_loss(assert_same):
    def by_dict(net, opt):
        compute = opt.record(lambda x, y: {"loss": F.cross_entropy(net(x), y), "x": x})

        def step(x, y):
            compute(x, y)["loss"].backward()
            opt.step()
            opt.zero_grad()

        return step

    assert_same("closure", by_dict)
