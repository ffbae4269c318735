"""Ctrl-C anywhere in a step: the step is undone or done, and the run can be saved and go on.

An interrupt is raised at lines of our own code that a step runs through, one after the other, each
in a run of its own: at some of them, and, in the slow tests, at all.
"""

import copy
import math

import pytest
import torch
from torch.overrides import _get_current_function_mode

from annealtune import SGDSA, EmbeddedTuner, StochasticSA, grid
from annealtune.strategies import Genetic, Tabu
from tests.optim.interrupter import Interrupter


def adamw(net):
    base = torch.optim.AdamW(net.parameters(), lr=0.01)
    return EmbeddedTuner(base, net, temperature=math.inf)


def rejecting(net):
    rates = grid(lr=[1e30], momentum=[0.9], nesterov=[True])
    return SGDSA(net, rates, temperature=0.0)


def as_published(net):
    return SGDSA(net, preset="paper-code", batch_size=16, temperature=math.inf)


def comparing(net):
    return SGDSA(net, grid(lr=[0.1, 0.05]), strategy=Tabu(candidates=2))


def breeding(net):
    return SGDSA(net, grid(lr=[0.1, 0.05]), strategy=Genetic(math.inf, population=2, trials=1))


def without_gradients(net):
    return StochasticSA(net, temperature=math.inf)


def without_gradients_rejecting(net):
    return StochasticSA(net, radius=1e30, temperature=0.0)


FAST = [(adamw, "closure"), (rejecting, "closure with backward")]
CASES = [
    *FAST,
    (adamw, "closure with backward"),
    (rejecting, "closure"),
    (as_published, "closure"),
    (comparing, "closure"),
    (breeding, "closure"),
    (without_gradients, "closure"),
    (without_gradients_rejecting, "closure"),
]


@pytest.fixture
def check(make_net, make_batches, bits, ways, loss_function):
    """Interrupt one step after another at the chosen lines."""

    def weights_of(net, tuner):
        """What a step moves: weights, state of the base, its options."""
        groups = [{k: v for k, v in g.items() if k != "params"} for g in tuner.base.param_groups]
        state = [tuner.base.state.get(p, {}) for p in net.parameters()]
        return bits([list(net.parameters()), groups, state])

    def surroundings_of(net):
        """What a forward leaves, one by one: it may be cut off between two of them."""
        flags = [(module.training, "train" in vars(module)) for module in net.modules()]
        random = bits(torch.get_rng_state())
        return (*map(bits, net.buffers()), random, flags, torch.is_grad_enabled())

    def check(kind, way, chosen):
        first, second = make_batches(2)

        def begun():
            net = make_net()
            tuner = kind(net)
            step = ways[way](tuner, loss_function(net))
            torch.manual_seed(7)
            step(*first)
            return net, tuner, step

        net, tuner, step = begun()
        before, outside_before = weights_of(net, tuner), surroundings_of(net)
        whole = Interrupter()
        assert not whole.run(lambda: step(*second))
        after, outside_after = weights_of(net, tuner), surroundings_of(net)
        numbers = chosen(list(enumerate(whole.seen, start=1)))
        assert len(numbers) > 30

        undone = done = 0
        for number in numbers:
            net, tuner, step = begun()
            interrupter = Interrupter(number)
            assert interrupter.run(lambda: step(*second))  # noqa: B023
            where = interrupter.where
            weights = weights_of(net, tuner)
            assert weights in (before, after), where
            undone, done = undone + (weights == before), done + (weights == after)
            for now, then, later in zip(
                surroundings_of(net), outside_before, outside_after, strict=True
            ):
                assert now in (then, later), where
            assert _get_current_function_mode() is None, where
            tuner.load_state_dict(tuner.state_dict())
            if number % 5 == 0:
                copy.deepcopy(tuner)
            tuner.zero_grad()
            step(*second)
            assert math.isfinite(tuner.last_step.loss), where
        assert undone > 15
        assert done > 0

    return check


@pytest.mark.parametrize(("kind", "way"), FAST)
def test_at_every_fifth_line(kind, way, check):
    check(kind, way, lambda seen: list({at: n for n, at in seen}.values())[::5])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "way"), CASES)
def test_at_every_line_whenever_it_is_run(kind, way, check):
    check(kind, way, lambda seen: [n for n, _ in seen])
