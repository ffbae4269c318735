"""StochasticSA: derivative-free, against Section 2.2 by hand."""

import math
import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import NonFiniteLossError, StochasticSA
from annealtune.optim import Shrinking
from annealtune.temperatures import Geometric


def directions(weights, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.empty_like(w).normal_(generator=generator) for w in weights]


def section_2_2(model, epochs, radius, temperature, factor, seed, *, train=True):
    """The naive implementation for training without gradients, on its own feet."""
    rng = random.Random(seed)
    weights = list(model.parameters())
    history = []
    model.train(train)
    with torch.no_grad():
        for batches in epochs:
            for x, y in batches:
                start = torch.get_rng_state()
                value = F.cross_entropy(model(x), y).item()
                end = torch.get_rng_state()
                buffers = [b.clone() for b in model.buffers()]
                old = [w.clone() for w in weights]
                seed_of_direction = int(rng.random() * 2**53)
                found = []
                for sign in (-1.0, 1.0):
                    for w, o, d in zip(
                        weights, old, directions(weights, seed_of_direction), strict=True
                    ):
                        w.copy_(o).add_(d, alpha=sign * radius)
                    torch.set_rng_state(start)
                    new_value = F.cross_entropy(model(x), y).item()
                    found.append((new_value, [w.clone() for w in weights]))
                    for b, o in zip(model.buffers(), buffers, strict=True):
                        b.copy_(o)
                best, point = min(found, key=lambda pair: pair[0])
                worsening = best - value
                accepted = rng.random() < math.exp(min(-worsening / temperature, 0.0))
                for w, o in zip(weights, point if accepted else old, strict=True):
                    w.copy_(o)
                torch.set_rng_state(end)
                history.append((value, best, worsening, accepted))
            temperature *= factor
    model.train()
    return history


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_same_moves_as_section_2_2_by_hand(mode, make_net, make_batches, bits):
    epochs = [make_batches(50, seed=seed) for seed in range(4)]
    by_hand, ours = make_net(), make_net()
    torch.manual_seed(5)
    expected = section_2_2(by_hand, epochs, 0.05, 0.002, 0.97, seed=13, train=mode == "train")
    random_state = torch.get_rng_state()

    if mode == "train":
        optimizer = StochasticSA(ours, radius=0.05, temperature=Geometric(0.002, 0.97), seed=13)
    else:
        optimizer = StochasticSA(
            ours, radius=0.05, preset="paper-code", batch_size=16, temperature=0.002, seed=13
        )
    torch.manual_seed(5)
    history = []
    for batches in epochs:
        for x, y in batches:
            optimizer.step(lambda x=x, y=y: F.cross_entropy(ours(x), y))
            info = optimizer.last_step
            history.append((info.loss, info.new_loss, info.worsening, info.accepted))
        optimizer.cool()

    assert history == expected
    assert bits(ours.state_dict()) == bits(by_hand.state_dict())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert 20 < sum(accepted for *_, accepted in history) < 180


@pytest.mark.parametrize(
    ("options", "radius", "temperature", "after_two"),
    [
        ({"preset": "paper-text"}, 0.01, 1.0, 0.97**2),
        ({"preset": "paper-code", "batch_size": 512}, 0.01, 512.0, 512 * 0.97**2),
        ({"preset": "paper-text", "temperature": 2.0, "radius": 0.5}, 0.5, 2.0, 2 * 0.97**2),
        ({}, 0.01, 0.0, 0.0),
    ],
)
def test_presets(options, radius, temperature, after_two, net):
    optimizer = StochasticSA(net, **options)
    assert optimizer.radius == radius
    assert optimizer.temperature == temperature
    optimizer.cool()
    optimizer.cool()
    assert optimizer.temperature == pytest.approx(after_two)


class Weight(nn.Module):
    """One weight; the objective is looked up by its position."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))


def scripted(values):
    """An objective that returns what it is told: at the point, on one side, on the other."""
    values = iter(values)
    return lambda: next(values)


@pytest.mark.parametrize(
    ("minus", "plus", "side", "accepted"),
    [
        (0.5, 0.7, -1, True),
        (0.7, 0.5, +1, True),
        (0.5, 0.5, -1, True),
        (1.5, 1.2, 0, False),
        (math.nan, 0.5, +1, True),
        (0.5, -math.inf, -1, True),
        (math.nan, -math.inf, 0, False),
        (math.inf, 1.5, 0, False),
    ],
)
def test_the_better_finite_side_is_the_move(minus, plus, side, accepted):
    model = Weight()
    optimizer = StochasticSA(model, radius=0.25, temperature=0.0, seed=1)
    (direction,) = directions([model.weight], int(random.Random(1).random() * 2**53))
    optimizer.step(scripted([1.0, minus, plus]))
    assert optimizer.last_step.accepted is accepted
    assert torch.equal(model.weight.data, side * 0.25 * direction)


def test_the_radius_shrinks_after_an_epoch_with_too_few_improvements():
    model = Weight()
    optimizer = StochasticSA(model, radius=Shrinking(1.0, factor=10.0), temperature=0.0)

    def epoch(improving):
        for step in range(10):
            better = 0.5 if step < improving else 1.5
            optimizer.step(scripted([1.0, better, better]))
        optimizer.step(scripted([1.0, 1.0, 1.0]))  # a tie says nothing
        optimizer.cool()
        return optimizer.radius

    assert epoch(10) == 1.0
    assert epoch(6) == 1.0
    assert epoch(5) == 0.1
    optimizer.cool()  # an epoch without steps says nothing
    assert optimizer.radius == 0.1
    assert epoch(0) == pytest.approx(0.01)
    assert {h["radius"] for h in optimizer.moves.settings} == {1.0, 0.1}


def test_frozen_weights_do_not_move(net, batch):
    x, y = batch
    net.norm.requires_grad_(False)
    optimizer = StochasticSA(net, radius=1.0, temperature=math.inf)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    optimizer.step(lambda: F.cross_entropy(net(x), y))
    for name, p in net.named_parameters():
        assert torch.equal(p, before[name]) == name.startswith("norm")


class Counting(nn.Module):
    """Counts its forwards in a parameter that nobody trains."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.count = nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, x):
        with torch.no_grad():
            self.count.add_(1)
        return self.layer(x)


@pytest.mark.parametrize("way", ["closure", "record"])
@pytest.mark.parametrize("options", [{}, {"preset": "paper-code", "batch_size": 4}])
def test_a_step_leaves_what_one_forward_writes(way, options):
    net, x = Counting(), torch.ones(4, 2)
    optimizer = StochasticSA(net, radius=0.5, temperature=0.0, **options)
    objective = lambda: (net(x) - 2).square().mean()
    compute = optimizer.record(objective)
    for _ in range(10):
        if way == "record":
            compute()
        optimizer.step(None if way == "record" else objective)
    assert 0 < optimizer.moves.total.accepted < 10
    assert net.count.item() == 10


def test_what_a_function_after_a_step_writes_is_undone_with_it():
    net, x = Counting(), torch.ones(4, 2)
    net.written = nn.Parameter(torch.zeros(1), requires_grad=False)  # by that function alone
    optimizer = StochasticSA(net, radius=0.5, temperature=0.0)
    verdicts = []
    for step in range(20):
        if step == 1:  # one may come late
            optimizer.after_step(lambda: net.written.data.add_(1))
        optimizer.step(lambda: (net(x) - 4).square().mean())
        verdicts.append(optimizer.last_step.accepted)
    assert 0 < sum(verdicts[1:]) < 19
    assert (net.written.item(), net.count.item()) == (sum(verdicts[1:]), 20)


def test_a_rejection_leaves_what_one_forward_leaves(make_net, batch, picture):
    x, y = batch
    net, plain = make_net(), make_net()
    optimizer, other = StochasticSA(net, radius=1e3, temperature=0.0), StochasticSA(plain)
    for model in (net, plain):
        torch.manual_seed(0)
        F.cross_entropy(model(x), y).backward()  # gradients of somebody else
    torch.manual_seed(0)
    with torch.no_grad():
        F.cross_entropy(plain(x), y)
    expected = picture(plain, other)
    torch.manual_seed(0)
    optimizer.step(lambda: F.cross_entropy(net(x), y))
    assert not optimizer.last_step.accepted
    found = picture(net, optimizer)
    found.pop("optimizer"), expected.pop("optimizer")
    assert found == expected


@pytest.mark.parametrize("preset", ["paper-text", "paper-code"])
def test_after_a_recorded_forward_a_rejection_changes_nothing(preset, net, batch, picture):
    x, y = batch
    optimizer = StochasticSA(net, radius=1e3, preset=preset, batch_size=16, temperature=1e-3)
    optimizer.record(lambda: F.cross_entropy(net(x), y))()
    expected = picture(net, optimizer)
    optimizer.step()
    assert not optimizer.last_step.accepted
    assert picture(net, optimizer) == expected


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("at", [1, 2])
def test_an_error_at_a_tentative_point_leaves_no_trace(error, at, make_net, batch, bits):
    x, y = batch
    net, twin = make_net(), make_net()
    optimizer, undisturbed = StochasticSA(net, radius=0.1), StochasticSA(twin, radius=0.1)
    before = bits(list(net.parameters()))
    calls = 0

    def objective():
        nonlocal calls
        calls += 1
        if calls == at + 1:
            raise error
        return F.cross_entropy(net(x), y)

    with pytest.raises(error):
        optimizer.step(objective)
    assert bits(list(net.parameters())) == before
    assert net.norm.num_batches_tracked == 1
    assert optimizer.moves.total.tried == 0
    for model, one in ((net, optimizer), (twin, undisturbed)):
        torch.manual_seed(0)
        for _ in range(5):
            one.step(lambda model=model: F.cross_entropy(model(x), y))
    assert bits(list(net.parameters())) == bits(list(twin.parameters())) != before


def test_a_broken_current_point_is_an_error_with_history(bits):
    model = Weight()
    optimizer = StochasticSA(model, radius=0.5, temperature=0.0)
    optimizer.step(scripted([1.0, 0.5, 0.7]))
    before = bits(model.weight)
    with pytest.raises(NonFiniteLossError, match=r"StochasticSA.step.*step 1"):
        optimizer.step(lambda: math.nan)
    assert bits(model.weight) == before
