"""Bad input: an error that names class, argument, rule and value, before any weight changes."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import (
    SGDSA,
    EmbeddedTuner,
    Geometric,
    Shrinking,
    SimulatedAnnealing,
    StochasticSA,
    grid,
)

NAN, INF = math.nan, math.inf


def sgd(net, **options):
    return torch.optim.SGD(net.parameters(), lr=0.1, **options)


def tuner(net, **options):
    return EmbeddedTuner(sgd(net), model=net, **options)


# What is done, the type of the error, what its message must say.
CONSTRUCTIONS = {
    # the set H
    "empty H": (
        lambda net: SGDSA(net, []),
        ValueError,
        ["Neighborhood(settings=...)", "at least one", "none"],
    ),
    "empty grid": (
        lambda net: SGDSA(net, grid(lr=[])),
        ValueError,
        ["Neighborhood(settings=...)", "at least one", "none"],
    ),
    "a setting twice": (
        lambda net: SGDSA(net, grid(lr=[0.1, 0.1])),
        ValueError,
        ["Neighborhood(settings=...)", "different", "lr=0.1", "twice"],
    ),
    "a setting twice in a list": (
        lambda net: tuner(net, neighborhood=[{"lr": 1}, {"lr": 1.0}]),
        ValueError,
        ["different", "lr=1.0", "twice"],
    ),
    "unknown option": (
        lambda net: SGDSA(net, grid(lr=[0.1], momentun=[0.9])),
        ValueError,
        ["SGDSA(neighborhood=...)", "options of SGD", "'momentun'", "momentum"],
    ),
    "unknown option of the base": (
        lambda net: tuner(net, neighborhood=grid(lr=[0.1], betas=[(0.9, 0.99)])),
        ValueError,
        ["EmbeddedTuner(neighborhood=...)", "options of SGD", "'betas'"],
    ),
    "option of one group only": (
        lambda net: EmbeddedTuner(
            torch.optim.SGD(
                [{"params": net.first.parameters(), "odd": 1}, {"params": net.last.parameters()}],
                lr=0.1,
            ),
            neighborhood=grid(odd=[1, 2]),
        ),
        ValueError,
        ["EmbeddedTuner(neighborhood=...)", "'odd'"],
    ),
    "params as an option": (
        lambda net: tuner(net, neighborhood=grid(params=[1])),
        ValueError,
        ["EmbeddedTuner(neighborhood=...)", "'params'"],
    ),
    "maximize as an option": (
        lambda net: SGDSA(net, grid(lr=[0.1], maximize=[False, True])),
        ValueError,
        ["SGDSA(neighborhood=...)", "'maximize'"],
    ),
    "negative rate": (
        lambda net: SGDSA(net, grid(lr=[0.1, -0.1])),
        ValueError,
        ["Setting(lr=...)", "negative", "-0.1"],
    ),
    "rate of NaN": (
        lambda net: SGDSA(net, grid(lr=[NAN])),
        ValueError,
        ["Setting(lr=...)", "finite", "nan"],
    ),
    "infinite rate": (
        lambda net: SGDSA(net, [{"lr": INF}]),
        ValueError,
        ["Setting(lr=...)", "finite", "inf"],
    ),
    "infinite momentum": (
        lambda net: SGDSA(net, [{"lr": 0.1, "momentum": INF}]),
        ValueError,
        ["Setting(momentum=...)", "finite", "inf"],
    ),
    "rate as text": (
        lambda net: SGDSA(net, grid(lr=["0.1"])),
        TypeError,
        ["Setting(lr=...)", "number", "'0.1'"],
    ),
    "one rate for a list": (
        lambda net: SGDSA(net, grid(lr=0.1)),
        TypeError,
        ["grid(lr=...)", "collection", "0.1"],
    ),
    "rates for settings": (
        lambda net: SGDSA(net, [0.1, 0.2]),
        TypeError,
        ["SGDSA(neighborhood=...)", "grid(lr=[0.1, 0.01])", "[0.1, 0.2]"],
    ),
    "a number for H": (
        lambda net: SGDSA(net, 0.1),
        TypeError,
        ["SGDSA(neighborhood=...)", "Neighborhood", "0.1"],
    ),
    "a number for H of a base": (
        lambda net: tuner(net, neighborhood=7),
        TypeError,
        ["EmbeddedTuner(neighborhood=...)", "Neighborhood", "7"],
    ),
    "no rate in H": (
        lambda net: SGDSA(net, grid(momentum=[0.0, 0.9])),
        ValueError,
        ["SGDSA(neighborhood=...)", "must name lr", "momentum"],
    ),
    "all settings refused": (
        lambda net: SGDSA(net, grid(lr=[0.1], nesterov=[True])),
        ValueError,
        ["at least one", "refuses all of", "nesterov=True"],
    ),
    "no H and rate 0": (
        lambda net: EmbeddedTuner(torch.optim.SGD(net.parameters(), lr=0.0), temperature=1.0),
        ValueError,
        ["EmbeddedTuner(neighborhood=...)", "positive", "0.0"],
    ),
    # temperature and strategy
    "negative temperature": (
        lambda net: SGDSA(net, temperature=-1.0),
        ValueError,
        ["SGDSA(temperature=...)", "not negative", "-1.0"],
    ),
    "temperature of NaN": (
        lambda net: tuner(net, temperature=NAN),
        ValueError,
        ["EmbeddedTuner(temperature=...)", "not negative", "nan"],
    ),
    "negative temperature of a preset": (
        lambda net: SGDSA(net, preset="paper-text", temperature=-2),
        ValueError,
        ["SGDSA(temperature=...)", "not negative", "-2"],
    ),
    "temperature as text": (
        lambda net: StochasticSA(net, temperature="hot"),
        TypeError,
        ["StochasticSA(temperature=...)", "number", "'hot'"],
    ),
    "a schedule class": (
        lambda net: SGDSA(net, temperature=Geometric),
        TypeError,
        ["SGDSA(temperature=...)", "number", "Geometric"],
    ),
    "cooling factor 1": (
        lambda net: SGDSA(net, temperature=Geometric(1.0, 1.0)),
        ValueError,
        ["Geometric(factor=...)", "between 0 and 1", "1.0"],
    ),
    "cooling factor 0": (
        lambda net: SGDSA(net, temperature=Geometric(1.0, 0)),
        ValueError,
        ["Geometric(factor=...)", "between 0 and 1", "0"],
    ),
    "cooling factor of NaN": (
        lambda net: SGDSA(net, temperature=Geometric(1.0, NAN)),
        ValueError,
        ["Geometric(factor=...)", "between 0 and 1", "nan"],
    ),
    "strategy and temperature": (
        lambda net: SGDSA(net, strategy=SimulatedAnnealing(1.0), temperature=2.0),
        ValueError,
        ["SGDSA(strategy=..., temperature=...)", "one of the two", "2.0"],
    ),
    "strategy that is none": (
        lambda net: StochasticSA(net, strategy=1),
        TypeError,
        ["StochasticSA(strategy=...)", "must be a Strategy", "1"],
    ),
    "strategy with an unknown name": (
        lambda net: StochasticSA(net, strategy="annealing"),
        ValueError,
        ["StochasticSA(strategy=...)", "'annealing'", "did you mean 'simulated-annealing'"],
    ),
    "strategy that chooses settings where there are none": (
        lambda net: StochasticSA(net, strategy="tabu"),
        TypeError,
        ["StochasticSA(strategy=...)", "no H", "Tabu("],
    ),
    "two lengths": (
        lambda net: SGDSA(net, epochs=3, total_steps=9),
        ValueError,
        ["SGDSA(epochs=..., total_steps=...)", "one length", "epochs=3", "total_steps=9"],
    ),
    "no epochs": (
        lambda net: SGDSA(net, epochs=0),
        ValueError,
        ["SGDSA(epochs=...)", "at least 1", "0"],
    ),
    "half a step": (
        lambda net: tuner(net, total_steps=1.5),
        TypeError,
        ["EmbeddedTuner(total_steps=...)", "whole number", "1.5"],
    ),
    "epochs beside a temperature": (
        lambda net: StochasticSA(net, temperature=1.0, epochs=-1),
        ValueError,
        ["StochasticSA(epochs=...)", "at least 1", "-1"],
    ),
    "seed as text": (
        lambda net: SGDSA(net, seed="0"),
        TypeError,
        ["SGDSA(seed=...)", "whole number", "'0'"],
    ),
    "seed None": (
        lambda net: StochasticSA(net, seed=None),
        TypeError,
        ["StochasticSA(seed=...)", "whole number", "None"],
    ),
    # presets
    "unknown preset": (
        lambda net: SGDSA(net, preset="paper"),
        ValueError,
        ["SGDSA(preset=...)", "'paper-text' or 'paper-code'", "'paper'"],
    ),
    "paper-code without batch size": (
        lambda net: SGDSA(net, preset="paper-code"),
        ValueError,
        ["SGDSA(preset='paper-code', batch_size=...)", "size of a minibatch", "None"],
    ),
    "paper-code with batch size 0": (
        lambda net: StochasticSA(net, preset="paper-code", batch_size=0),
        ValueError,
        ["StochasticSA(preset='paper-code', batch_size=...)", "size of a minibatch", "0"],
    ),
    "paper-code with half a sample": (
        lambda net: SGDSA(net, preset="paper-code", batch_size=1.5),
        ValueError,
        ["SGDSA(preset='paper-code', batch_size=...)", "1.5"],
    ),
    "paper-code without model": (
        lambda net: SGDSA(net.parameters(), preset="paper-code", batch_size=4),
        ValueError,
        ["SGDSA(probe_in='eval')", "module", "none"],
    ),
    # base, model, buffers
    "no optimizer": (
        lambda net: EmbeddedTuner(net),
        TypeError,
        ["EmbeddedTuner(base=...)", "torch.optim.Optimizer", "Net("],
    ),
    "an optimizer class": (
        lambda net: EmbeddedTuner(torch.optim.SGD),
        TypeError,
        ["EmbeddedTuner(base=...)", "torch.optim.Optimizer", "SGD"],
    ),
    "LBFGS": (
        lambda net: EmbeddedTuner(torch.optim.LBFGS(net.parameters())),
        TypeError,
        ["EmbeddedTuner(base=...)", "needs no closure", "LBFGS"],
    ),
    "a tuner": (
        lambda net: EmbeddedTuner(SGDSA(net)),
        TypeError,
        ["EmbeddedTuner(base=...)", "nobody else anneals", "SGDSA("],
    ),
    "derivative-free training as base": (
        lambda net: EmbeddedTuner(StochasticSA(net)),
        TypeError,
        ["EmbeddedTuner(base=...)", "nobody else anneals", "StochasticSA("],
    ),
    "a maximizing base": (
        lambda net: EmbeddedTuner(sgd(net, maximize=True)),
        ValueError,
        ["EmbeddedTuner", "must minimize", "maximize=True"],
    ),
    "model that is none": (
        lambda net: EmbeddedTuner(sgd(net), model="net"),
        TypeError,
        ["EmbeddedTuner(model=...)", "torch.nn.Module", "'net'"],
    ),
    "unknown mode": (
        lambda net: tuner(net, probe_in="test"),
        ValueError,
        ["EmbeddedTuner(probe_in=...)", "'train' or 'eval'", "'test'"],
    ),
    "buffers that are none": (
        lambda net: SGDSA(net.parameters(), buffers=[1.0]),
        TypeError,
        ["SGDSA(buffers=...)", "tensors", "1.0"],
    ),
    "one buffer for a list": (
        lambda net: SGDSA(net.parameters(), buffers=torch.ones(2)),
        TypeError,
        ["SGDSA(buffers=...)", "collection of tensors"],
    ),
    "buffers not called": (
        lambda net: StochasticSA(net.parameters(), buffers=net.buffers),
        TypeError,
        ["StochasticSA(buffers=...)", "collection of tensors"],
    ),
    # radius
    "radius 0": (
        lambda net: StochasticSA(net, radius=0.0),
        ValueError,
        ["StochasticSA(radius=...)", "positive and finite", "0.0"],
    ),
    "radius of NaN": (
        lambda net: StochasticSA(net, radius=NAN),
        ValueError,
        ["StochasticSA(radius=...)", "positive and finite", "nan"],
    ),
    "radius as text": (
        lambda net: StochasticSA(net, radius="small"),
        TypeError,
        ["StochasticSA(radius=...)", "number", "'small'"],
    ),
    "radius of a group": (
        lambda net: StochasticSA([{"params": net.parameters(), "radius": -1.0}]),
        ValueError,
        ["StochasticSA(radius=...)", "positive and finite", "-1.0"],
    ),
    "shrinking radius": (
        lambda net: Shrinking(INF),
        ValueError,
        ["Shrinking(initial=...)", "positive and finite", "inf"],
    ),
    "shrinking share": (
        lambda net: Shrinking(below=1.5),
        ValueError,
        ["Shrinking(below=...)", "[0, 1]", "1.5"],
    ),
    "shrinking factor": (
        lambda net: Shrinking(factor=1.0),
        ValueError,
        ["Shrinking(factor=...)", "exceed 1", "1.0"],
    ),
    "unknown scaling": (
        lambda net: StochasticSA(net, scaling="layer"),
        ValueError,
        ["StochasticSA(scaling=...)", "'none' or 'rms'", "'layer'"],
    ),
}


@pytest.mark.parametrize("case", CONSTRUCTIONS)
def test_of_a_constructor(case, net, bits):
    construct, error, parts = CONSTRUCTIONS[case]
    before = bits(net.state_dict())
    with pytest.raises(error) as raised:
        construct(net)
    check(raised, error, parts)
    assert bits(net.state_dict()) == before


def check(raised, error, parts):
    assert raised.type is error
    missing = [part for part in parts if part not in str(raised.value)]
    assert not missing, f"{missing} not in: {raised.value}"


def backward(net, loss):
    loss.backward()
    return loss.detach()


# The same for steps: what is done with a tuner, the net and a function that gives the loss.
STEPS = {
    "nothing": (
        lambda opt, net, loss: opt.step(),
        TypeError,
        ["SGDSA.step()", "a closure or loss=", "opt.record(fn)", "none of these"],
    ),
    "closure and loss": (
        lambda opt, net, loss: opt.step(loss, loss=1.0),
        TypeError,
        ["SGDSA.step()", "a closure or loss=", "both"],
    ),
    "loss without probe": (
        lambda opt, net, loss: opt.step(loss=backward(net, loss())),
        TypeError,
        ["SGDSA.step(loss=...)", "probe=", "none"],
    ),
    "closure and probe": (
        lambda opt, net, loss: opt.step(loss, probe=loss),
        TypeError,
        ["SGDSA.step(closure)", "must not be given probe", "function"],
    ),
    "a loss for a closure": (
        lambda opt, net, loss: opt.step(backward(net, loss())),
        TypeError,
        ["SGDSA.step(closure=...)", "callable", "tensor("],
    ),
    "a number for a probe": (
        lambda opt, net, loss: opt.step(loss=backward(net, loss()), probe=1.0),
        TypeError,
        ["SGDSA.step(probe=...)", "callable", "1.0"],
    ),
    "a number for an objective": (
        lambda opt, net, loss: opt.step(loss, objective=0.5),
        TypeError,
        ["SGDSA.step(objective=...)", "callable", "0.5"],
    ),
    "closure that returns nothing": (
        lambda opt, net, loss: opt.step(lambda: None),
        TypeError,
        ["SGDSA.step(closure)", "scalar", "None"],
    ),
    "closure that returns nothing after backward": (
        lambda opt, net, loss: opt.step(lambda: loss().backward()),
        TypeError,
        ["SGDSA.step(closure)", "scalar", "None"],
    ),
    "closure that returns a vector": (
        lambda opt, net, loss: opt.step(lambda: loss() * torch.ones(3)),
        ValueError,
        ["SGDSA.step(closure)", "scalar", "(3,)"],
    ),
    "closure that returns an empty tensor": (
        lambda opt, net, loss: opt.step(lambda: loss() * torch.ones(0)),
        ValueError,
        ["SGDSA.step(closure)", "scalar", "(0,)"],
    ),
    "closure that returns a pair": (
        lambda opt, net, loss: opt.step(lambda: (loss(), 1)),
        TypeError,
        ["SGDSA.step(closure)", "(loss, outputs, targets)", "a tuple of 2"],
    ),
    "closure that returns a truth": (
        lambda opt, net, loss: opt.step(lambda: loss() > 0),
        TypeError,
        ["SGDSA.step(closure)", "scalar", "True"],
    ),
    "closure that returns a complex loss": (
        lambda opt, net, loss: opt.step(lambda: loss() * 1j),
        TypeError,
        ["SGDSA.step(closure)", "scalar", "j"],
    ),
    "closure that needs no gradient": (
        lambda opt, net, loss: opt.step(lambda: loss().detach()),
        ValueError,
        ["SGDSA.step(closure)", "require a gradient", "tensor("],
    ),
    "closure that returns a float without backward": (
        lambda opt, net, loss: opt.step(lambda: 0.5),
        ValueError,
        ["SGDSA.step(closure)", "require a gradient", "0.5"],
    ),
    "closure of somebody else's weights": (
        lambda opt, net, loss: opt.step(lambda: nn.Linear(1, 1)(torch.ones(1)).sum()),
        ValueError,
        ["SGDSA.step", "at least one parameter", "none"],
    ),
    "no gradient in place": (
        lambda opt, net, loss: opt.step(loss=1.0, probe=loss),
        ValueError,
        ["SGDSA.step", "at least one parameter must have a gradient", "none"],
    ),
    "no gradient to propose": (
        lambda opt, net, loss: opt.propose(1.0),
        ValueError,
        ["SGDSA.step", "at least one parameter must have a gradient", "none"],
    ),
    "loss that is none": (
        lambda opt, net, loss: opt.step(loss=[backward(net, loss())], probe=loss),
        TypeError,
        ["SGDSA.step(loss)", "scalar", "[tensor("],
    ),
    "proposed vector": (
        lambda opt, net, loss: opt.propose(backward(net, loss()) * torch.ones(2)),
        ValueError,
        ["SGDSA.step(loss)", "scalar", "(2,)"],
    ),
    "objective that returns nothing": (
        lambda opt, net, loss: opt.step(loss, objective=lambda: None),
        TypeError,
        ["SGDSA.step(objective)", "scalar", "None"],
    ),
}


@pytest.mark.parametrize("case", STEPS)
def test_of_a_step(case, net, loss_of, bits):
    act, error, parts = STEPS[case]
    optimizer = SGDSA(net, temperature=INF)
    before = bits(list(net.parameters()))
    with pytest.raises(error) as raised:
        act(optimizer, net, loss_of)
    check(raised, error, parts)
    assert bits(list(net.parameters())) == before
    assert optimizer.moves.total.tried == 0
    optimizer.step(loss_of)  # and it goes on
    assert optimizer.last_step.step == 0


def test_of_a_second_evaluation(net, loss_of, bits):
    optimizer = SGDSA(net, temperature=INF)
    before = bits(list(net.parameters()))
    start = net.first.weight.detach().clone()
    with pytest.raises(ValueError, match=r"SGDSA.step\(closure\).*scalar.*\(2,\)"):
        optimizer.step(
            lambda: loss_of() * (1 if torch.equal(net.first.weight, start) else torch.ones(2))
        )
    assert bits(list(net.parameters())) == before


def test_of_a_resolution_leaves_the_trial_open(net, loss_of):
    optimizer = SGDSA(net, temperature=INF)
    loss = loss_of()
    loss.backward()
    optimizer.propose(loss)
    with pytest.raises(TypeError, match=r"SGDSA.step\(new_loss\).*scalar.*None"):
        optimizer.resolve(None)
    assert optimizer.resolve(0.0).accepted


@pytest.mark.parametrize(
    ("closure", "error", "parts"),
    [
        (None, TypeError, ["StochasticSA.step(closure)", "function", "None"]),
        (3.0, TypeError, ["StochasticSA.step(closure)", "function", "3.0"]),
        (lambda: None, TypeError, ["StochasticSA.step(closure)", "scalar", "None"]),
        (lambda: torch.ones(2), ValueError, ["StochasticSA.step(closure)", "scalar", "(2,)"]),
    ],
)
def test_of_a_derivative_free_step(closure, error, parts, net, bits):
    optimizer = StochasticSA(net)
    before = bits(list(net.parameters()))
    with pytest.raises(error) as raised:
        optimizer.step(closure)
    check(raised, error, parts)
    assert bits(list(net.parameters())) == before


def test_frozen_models(net, loss_of):
    net.requires_grad_(False)
    with pytest.raises(ValueError, match=r"SGDSA.step\(closure\).*require a gradient"):
        SGDSA(net).step(loss_of)
    with pytest.raises(ValueError, match=r"StochasticSA.step.*requires_grad=True.*none"):
        StochasticSA(net).step(loss_of)


@pytest.mark.parametrize("cls", [torch.optim.SGD, torch.optim.SparseAdam])
def test_sparse_gradients(cls, bits):
    embedding = nn.Embedding(5, 2, sparse=True)
    optimizer = EmbeddedTuner(
        cls(embedding.parameters(), lr=0.1), model=embedding, neighborhood=grid(lr=[0.1])
    )
    before = bits(embedding.weight)
    with pytest.raises(
        TypeError, match=r"EmbeddedTuner.step: gradients must be dense, got a sparse"
    ):
        optimizer.step(lambda: embedding(torch.tensor([1, 2])).sum())
    assert bits(embedding.weight) == before


def test_a_group_that_maximizes(net, loss_of):
    optimizer = SGDSA(net)
    with pytest.raises(ValueError, match=r"SGDSA.*must minimize, got one with maximize=True"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "maximize": True})
    assert len(optimizer.param_groups) == 1
    optimizer.step(loss_of)


def test_a_radius_of_an_added_group(net):
    optimizer = StochasticSA(net)
    with pytest.raises(ValueError, match=r"StochasticSA\(radius=...\) must be positive"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "radius": -1.0})
    assert len(optimizer.param_groups) == 1


def test_a_base_that_demands_a_closure_only_when_called(net, batch, bits):
    """No signature tells; at least nothing moves."""
    x, y = batch

    class Demanding(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            closure()

    optimizer = EmbeddedTuner(Demanding(net.parameters(), lr=0.1), model=net)
    before = bits(list(net.parameters()))
    with pytest.raises(TypeError, match="not callable"):
        optimizer.step(lambda: F.cross_entropy(net(x), y))
    assert bits(list(net.parameters())) == before
