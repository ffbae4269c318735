"""Bad arguments: an error of the right class that names the argument, before any weight changes."""

import math

import pytest
import torch
from torch import nn

from annealtune import SGDSA, EmbeddedTuner, StochasticSA, grid
from annealtune.optim import Shrinking
from annealtune.strategies import SimulatedAnnealing
from annealtune.temperatures import Geometric

NAN, INF = math.nan, math.inf


def make(cls, net, **options):
    if cls is EmbeddedTuner:
        return EmbeddedTuner(torch.optim.SGD(net.parameters(), lr=0.1), net, **options)
    return cls(**options) if cls is Shrinking else cls(net, **options)


# Values of the wrong kind, and those of the wrong type.
OPTIONS = {
    (SGDSA, "neighborhood"): (
        [[], [{"lr": 1}, {"lr": 1.0}], [{"momentum": 0.9}], [{"lr": 0.1, "nesterov": True}]],
        [[0.1, 0.2], 0.1, {"lr": 0.1}],
    ),
    (EmbeddedTuner, "neighborhood"): (
        [grid(params=[1]), grid(lr=[0.1], maximize=[False, True]), grid(momentun=[0.9])],
        [7],
    ),
    (SGDSA, "temperature"): ([-1.0], [Geometric]),
    (EmbeddedTuner, "temperature"): ([NAN], []),
    (StochasticSA, "temperature"): ([], ["hot"]),
    (StochasticSA, "strategy"): (["annealing"], [1, "tabu"]),  # which chooses settings of an H
    (SGDSA, "epochs"): ([0], []),
    (StochasticSA, "epochs"): ([-1], []),
    (EmbeddedTuner, "total_steps"): ([], [1.5]),
    (SGDSA, "seed"): ([], ["0"]),
    (StochasticSA, "seed"): ([], [None]),
    (SGDSA, "preset"): (["paper"], ["paper-code"]),  # which needs a batch size
    (EmbeddedTuner, "probe_in"): (["test"], []),
    (SGDSA, "accept_on"): (["accuracy"], []),
    (StochasticSA, "radius"): ([0.0, NAN], ["small"]),
}


@pytest.mark.parametrize(("cls", "name"), OPTIONS)
def test_of_a_constructor(cls, name, net, bits):
    before = bits(net.state_dict())
    for error, values in zip((ValueError, TypeError), OPTIONS[cls, name], strict=True):
        for value in values:
            with pytest.raises(error, match=rf"{cls.__name__}|Neighborhood") as raised:
                make(cls, net, **{name: value})
            assert raised.type is error
            assert name in str(raised.value) or name == "neighborhood"
    assert bits(net.state_dict()) == before


# Options that do not go together, and what the message must name.
TOGETHER = {
    "temperature": (SGDSA, {"preset": "paper-text", "temperature": -2}),
    "strategy": (SGDSA, {"strategy": SimulatedAnnealing(1.0), "temperature": 2.0}),
    "total_steps": (SGDSA, {"epochs": 3, "total_steps": 9}),
    "batch_size": (StochasticSA, {"preset": "paper-code", "batch_size": 0}),
    "initial": (Shrinking, {"initial": INF}),
    "factor": (Shrinking, {"factor": 0.5}),
}


@pytest.mark.parametrize("named", TOGETHER)
def test_of_options_that_do_not_go_together(named, net):
    cls, options = TOGETHER[named]
    with pytest.raises(ValueError, match=named):
        make(cls, net, **options)


def maximizing(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, maximize=True)


BASES = {
    "no optimizer": (lambda net: net, TypeError),
    "a class": (lambda net: torch.optim.SGD, TypeError),
    "LBFGS": (lambda net: torch.optim.LBFGS(net.parameters()), TypeError),
    "a tuner": (SGDSA, TypeError),
    "one without gradients": (StochasticSA, TypeError),
    "a maximizing one": (maximizing, ValueError),
    "one without a rate": (lambda net: torch.optim.SGD(net.parameters(), lr=0.0), ValueError),
}


@pytest.mark.parametrize(("build", "error"), BASES.values(), ids=BASES)
def test_of_a_base(build, error, net):
    with pytest.raises(error, match="EmbeddedTuner"):
        EmbeddedTuner(build(net), net)
    with pytest.raises(TypeError, match="model"):
        EmbeddedTuner(torch.optim.SGD(net.parameters(), lr=0.1), "net")


def test_an_option_of_one_group_only(net):
    groups = [{"params": net.first.parameters(), "odd": 1}, {"params": net.last.parameters()}]
    with pytest.raises(ValueError, match="'odd'"):
        EmbeddedTuner(torch.optim.SGD(groups, lr=0.1), net, neighborhood=grid(odd=[1, 2]))


# The same for steps; each is given a function that computes the loss.
STEPS = {
    "nothing": (lambda opt, loss: opt.step(), TypeError, "record"),
    "a loss for a closure": (lambda opt, loss: opt.step(loss()), TypeError, "closure"),
    "an objective": (lambda opt, loss: opt.step(loss, objective=0.5), TypeError, "objective"),
    "returns nothing": (lambda opt, loss: opt.step(lambda: None), TypeError, "closure"),
    "a vector": (lambda opt, loss: opt.step(lambda: loss() * torch.ones(3)), ValueError, "(3,)"),
    "a truth": (lambda opt, loss: opt.step(lambda: loss() > 0), TypeError, "closure"),
    "complex": (lambda opt, loss: opt.step(lambda: loss() * 1j), TypeError, "closure"),
    "no gradient": (lambda opt, loss: opt.step(lambda: loss().detach()), ValueError, "closure"),
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


def test_of_a_group_that_is_added(net, loss_of):
    optimizer = SGDSA(net)
    with pytest.raises(ValueError, match="maximize"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "maximize": True})
    with pytest.raises(TypeError, match="param_group"):
        optimizer.add_param_group([nn.Parameter(torch.ones(1))])
    assert len(optimizer.param_groups) == 1
    optimizer.step(loss_of)
