"""A base that keeps state where a rejection cannot undo it is refused at the first step."""

import math
from collections import defaultdict

import pytest
import torch
from torch.nn import functional as F

from annealtune import EmbeddedTuner, grid


class Lookahead(torch.optim.Optimizer):
    """As it is usually written: an optimizer inside, whose state is not that of the outside."""

    def __init__(self, inner):
        self.inner = inner
        self.param_groups = inner.param_groups
        self.defaults = inner.defaults
        self.state = defaultdict(dict)
        self._optimizer_step_pre_hooks = {}
        self._optimizer_step_post_hooks = {}

    def step(self, closure=None):
        self.inner.step()


class Plain(torch.optim.SGD):
    def step(self, closure=None):
        self.note()
        super().step()

    def note(self):
        pass


class Counting(Plain):
    steps = 0

    def note(self):
        self.steps += 1


class Remembering(Plain):
    def __init__(self, params, **options):
        super().__init__(params, **options)
        self.slow = {
            "weights": [p.detach().clone() for g in self.param_groups for p in g["params"]]
        }

    def note(self):
        for weight in self.slow["weights"]:
            weight.data.add_(1)


class Talking(Plain):
    """Flags that something was said, and numbers that stay, do no harm."""

    said = False
    limit = 3.0

    def note(self):
        self.said = True


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda net: Lookahead(torch.optim.Adam(net.parameters())), "inner.state"),
        (lambda net: Counting(net.parameters(), lr=0.1), "steps"),
        (lambda net: Remembering(net.parameters(), lr=0.1), "slow.weights.0"),
    ],
)
def test_it_is_refused_and_nothing_has_moved(make, name, net, batch, bits):
    x, y = batch
    tuner = EmbeddedTuner(make(net), model=net, neighborhood=grid(lr=[0.1]), temperature=math.inf)
    before = bits(list(net.parameters()))
    with pytest.raises(TypeError, match=rf"base=.*{name}"):
        tuner.step(lambda: F.cross_entropy(net(x), y))
    assert bits(list(net.parameters())) == before
    assert tuner.moves.total.tried == 0


def test_one_that_only_says_something_once_is_not(net, loss_of):
    base = Talking(net.parameters(), lr=0.1)
    tuner = EmbeddedTuner(base, model=net, neighborhood=grid(lr=[0.1]), temperature=math.inf)
    for _ in range(3):
        tuner.step(loss_of)
    assert base.said
    assert tuner.last_step.accepted
