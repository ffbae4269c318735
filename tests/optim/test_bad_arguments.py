"""Bad arguments: an error of the right class that names the argument, before any weight changes."""

import functools
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
LBFGS = torch.optim.LBFGS


def sgd(net, **options):
    return torch.optim.SGD(net.parameters(), **{"lr": 0.1, **options})


def tuner(net, **options):
    return EmbeddedTuner(sgd(net), net, **options)


def groups(net):
    return [{"params": net.first.parameters(), "odd": 1}, {"params": net.last.parameters()}]


# What is done, the class of the error, what its message must name.
CONSTRUCTIONS = {
    # the set H
    "empty H": (lambda net: SGDSA(net, []), ValueError, "settings"),
    "empty grid": (lambda net: SGDSA(net, grid(lr=[])), ValueError, "settings"),
    "a setting twice": (lambda net: SGDSA(net, grid(lr=[0.1, 0.1])), ValueError, "lr=0.1"),
    "unknown option": (lambda net: SGDSA(net, grid(momentun=[1])), ValueError, "momentun"),
    "option of one group only": (
        lambda net: EmbeddedTuner(
            torch.optim.SGD(groups(net), lr=0.1), net, neighborhood=grid(odd=[1, 2])
        ),
        ValueError,
        "'odd'",
    ),
    "params as option": (
        lambda net: tuner(net, neighborhood=grid(params=[1])),
        ValueError,
        "'params'",
    ),
    "maximize as option": (
        lambda net: SGDSA(net, grid(lr=[0.1], maximize=[False, True])),
        ValueError,
        "'maximize'",
    ),
    "negative rate": (lambda net: SGDSA(net, grid(lr=[0.1, -0.1])), ValueError, "lr"),
    "rate of NaN": (lambda net: SGDSA(net, grid(lr=[NAN])), ValueError, "lr"),
    "infinite momentum": (
        lambda net: SGDSA(net, [{"lr": 0.1, "momentum": INF}]),
        ValueError,
        "momentum",
    ),
    "rate as text": (lambda net: SGDSA(net, grid(lr=["0.1"])), TypeError, "lr"),
    "one rate for a list": (lambda net: SGDSA(net, grid(lr=0.1)), TypeError, "lr"),
    "rates for settings": (lambda net: SGDSA(net, [0.1, 0.2]), TypeError, "neighborhood"),
    "a number for H": (lambda net: tuner(net, neighborhood=7), TypeError, "neighborhood"),
    "no rate in H": (lambda net: SGDSA(net, grid(momentum=[0.0, 0.9])), ValueError, "lr"),
    "all settings refused": (
        lambda net: SGDSA(net, grid(lr=[0.1], nesterov=[True])),
        ValueError,
        "nesterov=True",
    ),
    "no H and rate 0": (lambda net: EmbeddedTuner(sgd(net, lr=0.0), net), ValueError, "0.0"),
    # temperature, strategy, length, seed
    "negative temperature": (lambda net: SGDSA(net, temperature=-1.0), ValueError, "temperature"),
    "temperature of NaN": (lambda net: tuner(net, temperature=NAN), ValueError, "temperature"),
    "negative temperature of a preset": (
        lambda net: SGDSA(net, preset="paper-text", temperature=-2),
        ValueError,
        "temperature",
    ),
    "temperature as text": (
        lambda net: StochasticSA(net, temperature="hot"),
        TypeError,
        "temperature",
    ),
    "a schedule class": (lambda net: SGDSA(net, temperature=Geometric), TypeError, "temperature"),
    "strategy and temperature": (
        lambda net: SGDSA(net, strategy=SimulatedAnnealing(1.0), temperature=2.0),
        ValueError,
        "strategy",
    ),
    "strategy that is none": (lambda net: StochasticSA(net, strategy=1), TypeError, "strategy"),
    "unknown strategy": (
        lambda net: StochasticSA(net, strategy="annealing"),
        ValueError,
        "'annealing'",
    ),
    "strategy of settings without H": (
        lambda net: StochasticSA(net, strategy="tabu"),
        TypeError,
        "strategy",
    ),
    "two lengths": (lambda net: SGDSA(net, epochs=3, total_steps=9), ValueError, "total_steps"),
    "no epochs": (lambda net: SGDSA(net, epochs=0), ValueError, "epochs"),
    "half a step": (lambda net: tuner(net, total_steps=1.5), TypeError, "total_steps"),
    "epochs below 0": (
        lambda net: StochasticSA(net, temperature=1.0, epochs=-1),
        ValueError,
        "epochs",
    ),
    "seed as text": (lambda net: SGDSA(net, seed="0"), TypeError, "seed"),
    "seed None": (lambda net: StochasticSA(net, seed=None), TypeError, "seed"),
    # presets
    "unknown preset": (lambda net: SGDSA(net, preset="paper"), ValueError, "preset"),
    "no batch size": (lambda net: SGDSA(net, preset="paper-code"), ValueError, "batch_size"),
    "batch size 0": (
        lambda net: StochasticSA(net, preset="paper-code", batch_size=0),
        ValueError,
        "batch_size",
    ),
    "half a sample": (
        lambda net: SGDSA(net, preset="paper-code", batch_size=1.5),
        ValueError,
        "batch_size",
    ),
    # base, model
    "no optimizer": (lambda net: EmbeddedTuner(net, net), TypeError, "base"),
    "an optimizer class": (lambda net: EmbeddedTuner(torch.optim.SGD, net), TypeError, "base"),
    "LBFGS": (lambda net: EmbeddedTuner(LBFGS(net.parameters()), net), TypeError, "LBFGS"),
    "a tuner": (lambda net: EmbeddedTuner(SGDSA(net), net), TypeError, "base"),
    "StochasticSA as base": (lambda net: EmbeddedTuner(StochasticSA(net), net), TypeError, "base"),
    "a maximizing base": (
        lambda net: EmbeddedTuner(sgd(net, maximize=True), net),
        ValueError,
        "maximize=True",
    ),
    "no module": (lambda net: EmbeddedTuner(sgd(net), "net"), TypeError, "model"),
    "unknown mode": (lambda net: tuner(net, probe_in="test"), ValueError, "probe_in"),
    "unknown judge": (lambda net: SGDSA(net, accept_on="accuracy"), ValueError, "accept_on"),
    # radius
    "radius 0": (lambda net: StochasticSA(net, radius=0.0), ValueError, "radius"),
    "radius of NaN": (lambda net: StochasticSA(net, radius=NAN), ValueError, "radius"),
    "radius as text": (lambda net: StochasticSA(net, radius="small"), TypeError, "radius"),
    "shrinking radius": (lambda net: Shrinking(INF), ValueError, "initial"),
    "shrinking share": (lambda net: Shrinking(below=1.5), ValueError, "below"),
    "shrinking factor": (lambda net: Shrinking(factor=1.0), ValueError, "factor"),
    "unknown scaling": (lambda net: StochasticSA(net, scaling="layer"), ValueError, "scaling"),
}


@pytest.mark.parametrize(("construct", "error", "named"), CONSTRUCTIONS.values(), ids=CONSTRUCTIONS)
def test_of_a_constructor(construct, error, named, net, bits):
    before = bits(net.state_dict())
    with pytest.raises(error) as raised:
        construct(net)
    assert raised.type is error
    assert named in str(raised.value)
    assert bits(net.state_dict()) == before


# The same for steps; each is given a function that computes the loss.
STEPS = {
    "nothing": (lambda opt, loss: opt.step(), TypeError, "record"),
    "a loss for a closure": (lambda opt, loss: opt.step(loss()), TypeError, "closure"),
    "an objective": (lambda opt, loss: opt.step(loss, objective=0.5), TypeError, "objective"),
    "returns nothing": (lambda opt, loss: opt.step(lambda: None), TypeError, "closure"),
    "backward for a loss": (
        lambda opt, loss: opt.step(lambda: loss().backward()),
        TypeError,
        "closure",
    ),
    "a vector": (lambda opt, loss: opt.step(lambda: loss() * torch.ones(3)), ValueError, "(3,)"),
    "an empty one": (lambda opt, loss: opt.step(lambda: loss() * torch.ones(0)), ValueError, "(0,"),
    "a pair": (lambda opt, loss: opt.step(lambda: (loss(), 1)), TypeError, "closure"),
    "a truth": (lambda opt, loss: opt.step(lambda: loss() > 0), TypeError, "closure"),
    "complex": (lambda opt, loss: opt.step(lambda: loss() * 1j), TypeError, "closure"),
    "no gradient": (lambda opt, loss: opt.step(lambda: loss().detach()), ValueError, "closure"),
    "a float": (lambda opt, loss: opt.step(lambda: 0.5), ValueError, "closure"),
    "somebody else's weights": (
        lambda opt, loss: opt.step(lambda: nn.Linear(1, 1)(torch.ones(1)).sum()),
        ValueError,
        "gradient",
    ),
    "objective of nothing": (
        lambda opt, loss: opt.step(loss, objective=lambda: None),
        TypeError,
        "objective",
    ),
}


@pytest.mark.parametrize(("act", "error", "named"), STEPS.values(), ids=STEPS)
def test_of_a_step(act, error, named, net, loss_of, bits):
    optimizer = SGDSA(net, temperature=INF)
    before = bits(list(net.parameters()))
    with pytest.raises(error) as raised:
        act(optimizer, loss_of)
    assert raised.type is error
    assert "SGDSA.step" in str(raised.value)
    assert named in str(raised.value)
    assert bits(list(net.parameters())) == before
    assert optimizer.moves.total.tried == 0
    optimizer.step(loss_of)  # and it goes on
    assert optimizer.last_step.step == 0


def test_of_a_second_evaluation(net, loss_of, bits):
    optimizer = SGDSA(net, temperature=INF)
    before = bits(list(net.parameters()))
    start = net.first.weight.detach().clone()
    with pytest.raises(ValueError, match=r"closure.*\(2,\)"):
        optimizer.step(
            lambda: loss_of() * (1 if torch.equal(net.first.weight, start) else torch.ones(2))
        )
    assert bits(list(net.parameters())) == before


@pytest.mark.parametrize(
    ("closure", "error"),
    [
        (None, TypeError),
        (3.0, TypeError),
        (lambda: None, TypeError),
        (lambda: torch.ones(2), ValueError),
    ],
)
def test_of_a_derivative_free_step(closure, error, net, bits):
    optimizer = StochasticSA(net)
    before = bits(list(net.parameters()))
    with pytest.raises(error, match="closure"):
        optimizer.step(closure)
    assert bits(list(net.parameters())) == before


def test_frozen_models(net, loss_of):
    net.requires_grad_(False)
    for optimizer in (SGDSA(net), StochasticSA(net)):
        with pytest.raises(ValueError, match="step"):
            optimizer.step(loss_of)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.SparseAdam])
def test_sparse_gradients(kind, bits):
    embedding = nn.Embedding(5, 2, sparse=True)
    base = kind(embedding.parameters(), lr=0.1)
    optimizer = EmbeddedTuner(base, embedding, neighborhood=grid(lr=[0.1]))
    before = bits(embedding.weight)
    with pytest.raises(TypeError, match="sparse"):
        optimizer.step(lambda: embedding(torch.tensor([1, 2])).sum())
    assert bits(embedding.weight) == before


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [(SGDSA, "maximize", True), (functools.partial(StochasticSA, radius=0.1), "radius", -1.0)],
)
def test_of_a_group_that_is_added(kind, option, value, net, loss_of):
    optimizer = kind(net)
    with pytest.raises(ValueError, match=option):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], option: value})
    assert len(optimizer.param_groups) == 1
    optimizer.step(loss_of)


def test_a_base_that_demands_a_closure_only_when_called(net, batch, bits):
    """No signature tells; at least nothing moves."""
    x, y = batch

    class Demanding(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            closure()

    optimizer = EmbeddedTuner(Demanding(net.parameters(), lr=0.1), net)
    before = bits(list(net.parameters()))
    with pytest.raises(TypeError, match="not callable"):
        optimizer.step(lambda: F.cross_entropy(net(x), y))
    assert bits(list(net.parameters())) == before
