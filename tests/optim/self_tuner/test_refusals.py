"""Arguments and steps that cannot be used are refused, and leave everything as it was."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SGDSA, SelfTuner, grid


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})


ARGUMENTS = {
    "total_steps": ([0, -1], [1.5, True, "100"]),
    "around": ([0, -0.1, math.nan, math.inf], ["0.1", True, [0.1]]),
    "warmup": ([-1], [0.5]),
    "offload": (["disk"], []),
    "objective": ([], [3]),
    "model": ([], ["net", [nn.Parameter(torch.ones(1))]]),
    "process_group": ([], ["nccl"]),
    "neighborhood": (
        [grid(lr=[0.1]), grid(betas=[(0, 1), (0, 2)])],
        [3, "lr", [0.1, 0.2], {"lr": 0.1}],
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument(name):
    model = nn.Linear(2, 1)
    base = sgd(model)
    before = copy.deepcopy(base.state_dict())
    for error, values in zip((ValueError, TypeError), ARGUMENTS[name], strict=True):
        for value in values:
            with pytest.raises(error, match=rf"SelfTuner.*{name}"):
                SelfTuner(base, **{"model": model, name: value})
            assert base.state_dict() == before


def test_arguments_that_do_not_go_together():
    model = nn.Linear(2, 1)
    many = grid(lr=[0.1 / 2**n for n in range(10)])
    with pytest.raises(ValueError, match=r"total_steps=100"):
        SelfTuner(sgd(model), model, neighborhood=many, total_steps=100)
    with pytest.raises(ValueError, match="around"):
        SelfTuner(sgd(model), model, around=0.5, neighborhood=grid(lr=[0.1, 0.01]))
    adam = torch.optim.Adam(model.parameters())
    with pytest.raises(ValueError, match="neighborhood"):  # one that the base takes is left
        SelfTuner(adam, model, neighborhood=grid(betas=[(0.9, 0.999), (1.5, 0.9)]))


def with_a_scheduler(model):
    base = sgd(model)
    torch.optim.lr_scheduler.StepLR(base, 10)
    return base


def maximizing(model):
    groups = [{"params": [model.weight]}, {"params": [model.bias], "maximize": True}]
    return torch.optim.SGD(groups, lr=0.1)


BASES = {
    "one that needs a closure": (lambda model: torch.optim.LBFGS(model.parameters()), TypeError),
    "one of its kind": (lambda model: SelfTuner(sgd(model), model), TypeError),
    "a tuner": (SGDSA, TypeError),
    "without parameters": (lambda model: torch.optim.SGD([{"params": []}], lr=0.1), ValueError),
    "without a rate": (lambda model: sgd(model, lr=0.0), ValueError),
    "that maximizes": (maximizing, ValueError),
    "with a scheduler": (with_a_scheduler, ValueError),
}


@pytest.mark.parametrize(("make", "error"), BASES.values(), ids=BASES)
def test_a_base(make, error):
    model = nn.Linear(2, 1)
    with pytest.raises(error, match="SelfTuner"):
        SelfTuner(make(model), model)


class Loop:
    def __init__(self, features=4, **settings):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 2))
        self.optimizer = SelfTuner(sgd(self.model), self.model, total_steps=400, **settings)
        self.inputs, self.classes = torch.randn(16, features), torch.randint(0, 2, (16,))

    def loss(self):
        return F.cross_entropy(self.model(self.inputs), self.classes)

    def steps(self, count):
        for _ in range(count):
            self.optimizer.step(self.loss)
        return self

    def past_the_race(self):
        while self.optimizer.is_racing:
            self.steps(1)
        return self


@pytest.fixture
def refused(picture):
    def refused(loop, error, function):
        loop.optimizer.zero_grad()
        before = {**picture(loop.model, loop.optimizer), "gradients": None, "random": None}
        steps = loop.optimizer.steps
        with pytest.raises(error, match=r"SelfTuner|load_state_dict|(?i:closure)"):
            function()
        after = {**picture(loop.model, loop.optimizer), "gradients": None, "random": None}
        assert after == before
        assert loop.optimizer.steps == steps
        loop.steps(2)  # and it goes on

    return refused


def bare(loop):
    loop.loss().backward()
    loop.optimizer.step()


def unrecorded(loop):
    with torch.no_grad():
        loop.optimizer.record(loop.loss)()
    loop.optimizer.step()


STEPS = {
    "nothing tells the loss": (bare, TypeError),
    "calls under no_grad only": (unrecorded, TypeError),
    "a closure without a loss": (lambda loop: loop.optimizer.step(lambda: None), TypeError),
    "many elements recorded": (
        lambda loop: loop.optimizer.record(lambda: loop.model(loop.inputs))(),
        TypeError,
    ),
    "no gradient recorded": (
        lambda loop: loop.optimizer.record(lambda: loop.loss().detach())(),
        ValueError,
    ),
    "no function to record": (lambda loop: loop.optimizer.record(3), TypeError),
}


@pytest.mark.parametrize("made", [0, 3], ids=["at the first step", "in the race"])
@pytest.mark.parametrize(("act", "error"), STEPS.values(), ids=STEPS)
def test_a_step(act, error, made, refused):
    loop = Loop().steps(made)
    refused(loop, error, lambda: act(loop))


class TestSomebodyElseWrites:
    def write(self, loop):
        with torch.no_grad():
            for p in loop.model.parameters():
                p.mul_(0.5)

    def test_weights_in_the_middle_of_a_race(self):
        for way in (self.write, lambda loop: loop.model.load_state_dict(loop.model.state_dict())):
            loop = Loop().steps(3)
            way(loop)
            with pytest.raises(RuntimeError, match=r"SelfTuner.*is_racing"):
                loop.steps(1)

    def test_weights_before_the_first_step_and_after_the_race_are_welcome(self):
        loop = Loop()
        self.write(loop)
        loop.steps(3).past_the_race()
        self.write(loop)
        loop.steps(3)

    @pytest.mark.parametrize("racing", [True, False])
    def test_a_rate(self, racing):
        loop = Loop().steps(3) if racing else Loop().past_the_race()
        loop.optimizer.param_groups[0]["lr"] = 0.123
        with pytest.raises(ValueError, match=r"0\.123"):
            loop.steps(1)
        loop = Loop().steps(3) if racing else Loop().past_the_race()
        torch.optim.lr_scheduler.LambdaLR(loop.optimizer, lambda epoch: 0.5)
        with pytest.raises(ValueError, match="scheduler"):
            loop.steps(1)


OTHERS = {
    "another neighborhood": {"neighborhood": grid(lr=[0.01, 0.1])},
    "another model": {"features": 5},
}


@pytest.mark.parametrize("made", [3, 60])
@pytest.mark.parametrize("settings", OTHERS.values(), ids=OTHERS)
def test_a_state_of_another_run(refused, settings, made):
    state = Loop(**settings).steps(made).optimizer.state_dict()
    loop = Loop().steps(2)
    refused(loop, ValueError, lambda: loop.optimizer.load_state_dict(state))
