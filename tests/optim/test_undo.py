"""A rejection leaves exactly what one plain forward and backward leaves, bit for bit.

Kinds of models are in loops/test_models.py, all bases of torch in test_every_base.py.
"""

import copy
import math

import pytest
import torch
from torch import nn

from annealtune import SGDSA, EmbeddedTuner, grid


class OddOptimizer(torch.optim.Optimizer):
    """State of every kind: none at first, plain, nested, replaced, beside the parameters.

    It also writes into gradients behind autograd's back, replaces or drops them, draws random
    numbers and writes options of its own into its groups.
    """

    def __init__(self, params, lr=0.1, gradients="data"):
        super().__init__(params, {"lr": lr, "gradients": gradients})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            group.setdefault("history", []).append(group["lr"])
            group.setdefault("moving", torch.zeros(2)).add_(1)
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                state["average"] = state.get("average", 0) + p.grad  # a new tensor each time
                state.setdefault("nested", {"deep": [torch.zeros(1)]})["deep"][0].add_(1)
                state.setdefault("names", set()).add(state["step"])
                p.add_(p.grad + torch.randn(()).to(p.dtype), alpha=-group["lr"])
                if group["gradients"] == "data":
                    p.grad.data.mul_(0.5)
                elif group["gradients"] == "replaced":
                    p.grad = p.grad * 2
                elif group["gradients"] == "dropped":
                    p.grad = None
        self.state["all"]["steps"] = self.state["all"].get("steps", 0) + 1


@pytest.mark.parametrize("gradients", ["data", "replaced", "dropped", "spared"])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_with_a_base_that_has_no_manners(gradients, steps, make_net, batch, picture):
    x, y = batch
    net = make_net()
    base = OddOptimizer(net.parameters(), gradients=gradients)
    for _ in range(steps):
        base.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        base.step()
    twin, twin_base = copy.deepcopy((net, base))
    random_state = torch.get_rng_state()
    for _ in range(3):
        twin_base.zero_grad()
        nn.functional.cross_entropy(twin(x), y).backward()
    expected = picture(twin, twin_base)

    tuner = EmbeddedTuner(base, net, neighborhood=grid(lr=[3.0]), temperature=math.inf)
    torch.set_rng_state(random_state)
    places = [p.data_ptr() for p in net.parameters()]
    here = net.first.bias.detach().clone()

    def closure():
        loss = nn.functional.cross_entropy(net(x), y)
        return loss * (1.0 if torch.equal(net.first.bias, here) else math.nan)

    for _ in range(3):
        tuner.step(closure)
        assert not tuner.last_step.accepted
    assert picture(net, tuner) == expected
    assert [p.data_ptr() for p in net.parameters()] == places
    assert tuner.param_groups is base.param_groups


@pytest.mark.parametrize("foreach", [False, True])
def test_gradients_stay_the_same_objects(foreach, net, loss_of, bits):
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, foreach=foreach)
    tuner = EmbeddedTuner(base, net, neighborhood=grid(lr=[1e4, 0.1]), temperature=0.0)
    compute_loss = tuner.record(loss_of)
    verdicts = set()
    for _ in range(10):
        tuner.zero_grad()
        compute_loss().backward()
        objects = [p.grad for p in net.parameters()]
        values = bits(objects)
        tuner.step()
        assert all(p.grad is g for p, g in zip(net.parameters(), objects, strict=True))
        if not tuner.last_step.accepted or not foreach:
            assert bits(objects) == values
        verdicts.add(tuner.last_step.accepted)
    assert verdicts == {True, False}


class BrokenError(Exception):
    pass


class Interrupted(torch.optim.AdamW):
    """Fails at the end of its step, when the gradients are gone."""

    error = None

    def step(self, closure=None):
        super().step()
        if self.error is not None:
            self.param_groups[0]["params"][0].grad.zero_()
            raise self.error


@pytest.mark.parametrize("error", [BrokenError, KeyboardInterrupt])
@pytest.mark.parametrize("way", ["closure", "record", "objective", "step of the base"])
def test_an_error_at_the_tentative_point_leaves_no_trace(error, way, make_net, batch, picture):
    x, y = batch
    models = [make_net(), make_net()]
    bases = [Interrupted(m.parameters(), lr=0.5) for m in models]
    torch.manual_seed(0)
    nn.functional.cross_entropy(models[0](x), y).backward()
    expected = picture(models[0], bases[0])

    net = models[1]
    tuner = EmbeddedTuner(bases[1], net, temperature=math.inf)
    original = net.first.weight.detach().clone()
    plain = lambda: nn.functional.cross_entropy(net(x), y)

    def evaluate():
        loss = plain()
        if not torch.equal(net.first.weight, original):
            net.zero_grad()
            raise error
        return loss

    def step():
        if way == "closure":
            tuner.step(evaluate)
        elif way == "objective":
            tuner.step(plain, objective=evaluate)
        elif way == "record":
            tuner.record(evaluate)().backward()
            tuner.step()
        else:
            tuner.step(plain)

    tuner.base.error = error if way == "step of the base" else None
    torch.manual_seed(0)
    with pytest.raises(error):
        step()
    assert picture(net, tuner) == expected
    assert tuner.moves.total.tried == 0
    tuner.base.error = None
    tuner.step(plain)
    assert tuner.last_step.step == 0


def test_many_rejections_in_a_row_change_nothing_and_are_counted(net, batch, bits):
    """Also after the weights have become those of another kind."""
    x, y = batch
    tuner = SGDSA(net, grid(lr=[1e6]), temperature=0.0)
    for dtype in (torch.float32, torch.float64):
        net.to(dtype)
        view = net.first.weight.data.view(-1)
        weights = bits(list(net.parameters()))
        for _ in range(20):
            tuner.step(lambda: nn.functional.cross_entropy(net(x.to(dtype)), y))  # noqa: B023
        assert bits(list(net.parameters())) == weights
        assert view.data_ptr() == net.first.weight.data_ptr()
    assert tuner.moves.total == (40, 0, 0)


class Lstm(nn.Module):
    """Has no state at first, then a tuple."""

    def __init__(self):
        super().__init__()
        self.cell, self.last, self.state = nn.LSTMCell(2, 3), nn.Linear(3, 1), None

    def forward(self, x):
        state = self.cell(x, self.state)
        self.state = tuple(map(torch.Tensor.detach, state))
        return self.last(state[0])


def test_a_state_in_a_tuple_is_that_of_the_plain_forwards(bits):
    net = Lstm()
    twin, x = copy.deepcopy(net), torch.randn(4, 2)
    base = torch.optim.SGD(net.parameters(), lr=0.1)
    tuner = EmbeddedTuner(base, net, neighborhood=grid(lr=[1e6]), temperature=0.0)
    for _ in range(3):
        tuner.step(lambda: (net(x) - 1).square().mean())
        twin(x)
        assert not tuner.last_step.accepted
        assert bits(net.state) == bits(twin.state)


def test_a_hook_that_begins_late_to_write_frozen_parameters():
    net = nn.Linear(2, 1)
    net.seen = nn.Parameter(torch.zeros(1), requires_grad=False)
    base = torch.optim.SGD([net.weight, net.bias], lr=0.1)
    tuner = EmbeddedTuner(base, net, neighborhood=grid(lr=[1e6]), temperature=0.0)
    begun = False
    tuner.after_step(lambda: net.seen.add_(1) if begun else None)
    x = torch.ones(1, 2)
    for step in range(5):
        begun = step >= 2
        tuner.step(lambda: (net(x) - 1).square().mean())
        assert not tuner.last_step.accepted
        assert net.seen == 0


class Halving(torch.optim.SGD):
    """Halves the gradients behind autograd's back, but for groups that stand still."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if group["lr"] > 0:
                    p.grad.data.mul_(0.5)


def test_a_rate_of_zero_does_not_show_what_happens_to_gradients():
    weight = nn.Parameter(torch.ones(4))
    tuner = EmbeddedTuner(
        Halving([weight], lr=0.1), nn.ParameterList([weight]), neighborhood=grid(lr=[0.0, 0.1])
    )
    for _ in range(40):
        calls = iter([1.0, math.nan])
        tuner.step(lambda calls=calls: (weight**2).sum() * next(calls))
        assert not tuner.last_step.accepted
        assert torch.equal(weight.grad, 2 * weight), tuner.last_step.setting
