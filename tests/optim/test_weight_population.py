"""Weights as a problem: known answers, and an evaluation that leaves no trace."""

import math
import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune.optim import WeightPopulation
from annealtune.search import Annealer, Breedable, GeneticSearch


@pytest.fixture
def line():
    """A line through the points of another line, and its loss."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = x @ torch.tensor([[1.0], [-1.0]]) + 0.5
    return model, lambda: F.mse_loss(model(x), y)


@pytest.fixture
def problem(net, loss_of):
    return WeightPopulation(net, loss_of)


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def test_it_can_be_bred(problem):
    assert isinstance(problem, Breedable)


@pytest.mark.parametrize("search", [GeneticSearch, Annealer])
def test_both_engines_find_the_line(line, search):
    model, loss = line
    problem = WeightPopulation(model, loss)
    before = loss().item()
    result = search(problem, seed=0).run(evaluations=2500)
    assert loss().item() == before  # the search itself moves nothing
    problem.load(result.best_state)
    assert loss().item() == pytest.approx(result.best_energy) == pytest.approx(0, abs=2e-3)
    assert model.weight.tolist()[0] == pytest.approx([1.0, -1.0], abs=0.1)


def test_initial_weights_are_the_present_ones_with_noise_of_the_radius(net, loss_of):
    problem = WeightPopulation(net, loss_of, radius=0.5)
    noise = torch.stack([problem.initial(random.Random(seed)) - flat(net) for seed in range(200)])
    assert noise.std().item() == pytest.approx(0.5, rel=0.02)
    assert noise.mean().item() == pytest.approx(0.0, abs=0.02)
    assert len({tuple(row.tolist()) for row in noise}) == 200


def test_all_of_it_comes_from_the_generator_of_the_search(problem):
    first, second = torch.zeros_like(flat(problem.model)), torch.ones_like(flat(problem.model))
    for make in (
        problem.initial,
        lambda rng: problem.propose(first, rng),
        lambda rng: problem.crossover(first, second, rng),
    ):
        torch.manual_seed(1)
        here = make(random.Random(5))
        torch.manual_seed(2)
        assert torch.equal(make(random.Random(5)), here)
        assert any(not torch.equal(make(random.Random(seed)), here) for seed in range(6, 12))


def test_states_are_new_tensors_without_history(problem):
    state = problem.initial(random.Random(0))
    kept = state.clone()
    children = [
        problem.propose(state, random.Random(1)),
        problem.crossover(state, state, random.Random(1)),
    ]
    for child in [state, *children]:
        assert not child.requires_grad
    for child in children:
        child.zero_()
    assert torch.equal(state, kept)
    before = flat(problem.model)
    state.zero_()
    assert torch.equal(flat(problem.model), before)


def test_a_child_takes_whole_tensors_from_its_parents(problem):
    first, second = torch.zeros_like(flat(problem.model)), torch.ones_like(flat(problem.model))
    sizes = [p.numel() for p in problem.model.parameters()]
    seen = set()
    for seed in range(50):
        parts = problem.crossover(first, second, random.Random(seed)).split(sizes)
        means = [part.mean().item() for part in parts]
        assert set(means) <= {0.0, 1.0}
        seen.add(tuple(means))
    assert len(seen) > 20  # of 64 patterns


def test_an_evaluation_leaves_no_trace(net, batch, picture):
    x, y = batch

    def loss():
        net.zero_grad(set_to_none=False)  # as many loss functions do
        net.train()
        return F.cross_entropy(net(x), y)

    F.cross_entropy(net(x), y).backward()  # BatchNorm has moved, gradients are there
    net.eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    gradients = [p.grad for p in net.parameters()]
    problem = WeightPopulation(net, loss)
    state = problem.initial(random.Random(0))
    before = picture(net, optimizer)
    energy = problem.energy(state)
    assert picture(net, optimizer) == before
    assert all(p.grad is gradient for p, gradient in zip(net.parameters(), gradients, strict=True))
    assert not any(module.training for module in net.modules())
    assert problem.energy(state) == energy  # the same dropout
    problem.load(state)
    with torch.no_grad():
        assert loss().item() == energy


def test_an_evaluation_that_fails_leaves_no_trace_either(net, batch, picture):
    x, _ = batch

    def fail():
        net(x)
        raise KeyboardInterrupt

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    problem = WeightPopulation(net, fail)
    before = picture(net, optimizer)
    with pytest.raises(KeyboardInterrupt):
        problem.energy(problem.initial(random.Random(0)))
    assert picture(net, optimizer) == before


def test_no_graph_is_built(problem):
    before = problem.model.graphs
    problem.energy(problem.initial(random.Random(0)))
    assert problem.model.graphs == before


def test_frozen_parameters_stay_where_they_are(net, loss_of, bits):
    net.first.requires_grad_(False)
    problem = WeightPopulation(net, loss_of)
    frozen = bits(list(net.first.parameters()))
    result = GeneticSearch(problem, population=4).run(iterations=3)
    problem.load(result.best_state)
    assert bits(list(net.first.parameters())) == frozen
    assert result.best_state.numel() == sum(p.numel() for p in net.parameters() if p.requires_grad)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_states_have_the_type_of_the_weights(make_net, make_batches, dtype):
    net = make_net(dtype=dtype)
    x, y = make_batches(1, dtype=dtype)[0]
    problem = WeightPopulation(net, lambda: F.cross_entropy(net(x), y))
    state = problem.propose(problem.initial(random.Random(0)), random.Random(1))
    assert state.dtype == dtype
    problem.load(state)
    assert torch.equal(flat(net), state)


def test_a_net_with_a_diverged_loss_never_becomes_the_best(line):
    model, loss = line
    limit = flat(model).abs().max().item()
    problem = WeightPopulation(
        model, lambda: loss() if flat(model).abs().max() <= limit + 0.2 else torch.tensor(math.nan)
    )
    result = GeneticSearch(problem, population=8, seed=1).run(iterations=20)
    assert math.isfinite(result.best_energy)
    assert result.best_state.abs().max().item() <= limit + 0.2


def test_a_resumed_search_is_the_same_bit_for_bit(make_net, make_batches, bits, tmp_path):
    def search():
        net, (x, y) = make_net(), make_batches(1)[0]
        problem = WeightPopulation(net, lambda: F.cross_entropy(net(x), y))
        return GeneticSearch(problem, population=6, seed=3)

    first = search()
    first.run(iterations=4)
    torch.save(first.state_dict(), tmp_path / "search.pt")
    second = search()
    second.load_state_dict(torch.load(tmp_path / "search.pt"))
    ended = first.run(iterations=4), second.run(iterations=4)
    assert bits(ended[0].best_state) == bits(ended[1].best_state)
    assert bits(first.state_dict()["members"]) == bits(second.state_dict()["members"])


@pytest.mark.parametrize("loss", [0.25, torch.tensor([0.25]), torch.tensor(0.25), 1])
def test_a_loss_may_be_any_number(net, loss):
    problem = WeightPopulation(net, lambda: loss)
    energy = problem.energy(problem.initial(random.Random(0)))
    assert (type(energy), energy) == (float, float(loss))


@pytest.mark.parametrize("loss", [torch.ones(2), None, "low", True])
def test_a_loss_that_is_no_number(net, loss):
    problem = WeightPopulation(net, lambda: loss)
    with pytest.raises(TypeError, match=r"WeightPopulation\(loss=...\) must return a number"):
        problem.energy(problem.initial(random.Random(0)))


@pytest.mark.parametrize("shape", [(3,), (1, 117)])
def test_weights_that_do_not_fit(problem, shape):
    before = flat(problem.model)
    with pytest.raises(
        ValueError, match=r"WeightPopulation.load\(state=...\) .* got .*\("
    ) as caught:
        problem.load(torch.zeros(shape))
    assert str(shape) in str(caught.value)
    assert str(before.numel()) in str(caught.value)
    assert torch.equal(flat(problem.model), before)


@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        ({"model": 3}, TypeError, ["WeightPopulation(model=...)", "torch.nn.Module", "3"]),
        ({"model": nn.ReLU()}, ValueError, ["WeightPopulation(model=...)", "requires a gradient"]),
        ({"loss": 0.5}, TypeError, ["WeightPopulation(loss=...)", "callable", "0.5"]),
        ({"radius": 0}, ValueError, ["WeightPopulation(radius=...)", "positive", "0"]),
        ({"radius": "wide"}, TypeError, ["WeightPopulation(radius=...)", "a number", "'wide'"]),
    ],
)
def test_bad_input_names_class_argument_rule_and_value(net, loss_of, arguments, error, parts):
    with pytest.raises(error) as caught:
        WeightPopulation(**{"model": net, "loss": loss_of, **arguments})
    for part in parts:
        assert part in str(caught.value)
