"""Where nothing is given the run finds its rates itself; what is given is obeyed."""

import math

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, HillClimbing, SelfTuning, grid
from annealtune.optim import Attribute

TRAINED_ON = 1400
BATCH = 32


def sgd(net, **options):
    return SGDSA(net, **options)


def adamw(net, lr=1e-3, **options):
    return EmbeddedTuner(torch.optim.AdamW(net.parameters(), lr=lr), model=net, **options)


BOTH = pytest.mark.parametrize("make", [sgd, adamw])


@pytest.fixture(scope="module")
def digits():
    """Images and labels, in an order that mixes the writers."""
    inputs, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return torch.tensor(inputs / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]


def classifier():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))


def train(net, tuner, digits, epochs, factor=1.0, steps=None):
    """Train on whole epochs, or on so many steps; return all moves."""
    inputs, labels = digits
    source, moves = torch.Generator().manual_seed(1), []
    for _ in range(epochs):
        for chosen in torch.randperm(TRAINED_ON, generator=source).split(BATCH)[:steps]:
            x, y = inputs[chosen], labels[chosen]
            tuner.step(lambda: factor * F.cross_entropy(net(x), y))  # noqa: B023
            moves.append(tuner.last_step)
        tuner.cool()
    return moves


def accuracy(net, tuner, digits):
    """Of the averaged weights, on images that were not trained on."""
    inputs, labels = digits
    loader = inputs[:TRAINED_ON].split(100)
    with tuner.averaged(loader), torch.no_grad():
        net.eval()
        right = net(inputs[TRAINED_ON:]).argmax(1) == labels[TRAINED_ON:]
        net.train()
    return right.float().mean().item()


@BOTH
@pytest.mark.parametrize("length", [{}, {"epochs": 14}, {"total_steps": 14 * 44}])
def test_it_learns_and_measures_few_steps(make, length, digits):
    net = classifier()
    tuner = make(net, **length)
    assert isinstance(tuner.strategy, SelfTuning)
    moves = train(net, tuner, digits, epochs=14)
    assert len(moves) == 616
    assert tuner.probes.steps == len(moves)
    assert sum(move.probed for move in moves) == tuner.probes.probed < 0.2 * len(moves)
    assert accuracy(net, tuner, digits) > 0.9
    late = sum(move.setting["lr"] for move in moves[-44:])
    early = sum(move.setting["lr"] for move in moves[100:144])
    assert late < 0.2 * early if length else late > 0.5 * early


GIVEN = {
    "a neighborhood": {"neighborhood": grid(lr=[0.1, 0.01])},
    "a temperature": {"temperature": 0.5},
    "a strategy": {"strategy": "hill-climbing"},
    "a strategy of one's own": {"strategy": HillClimbing()},
    "a criterion": {"accept_on": "error"},
}


@BOTH
@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_what_is_given_is_obeyed(make, given, net, batch):
    x, y = batch
    tuner = make(net, **given)
    assert not isinstance(tuner.strategy, SelfTuning)
    assert not tuner.averages
    for _ in range(60):
        tuner.step(lambda: (F.cross_entropy(net(x), y), net.last.weight[:, :1].T, y[:1]))
    assert tuner.probes.share == 1.0
    assert tuner.summary().total.tried == 60
    assert all(setting in tuner.neighborhood for setting in tuner.summary().settings)
    if "neighborhood" in given:
        assert tuner.neighborhood == given["neighborhood"]


@pytest.mark.parametrize("preset", ["paper-text", "paper-code"])
def test_so_is_a_preset(net, loss_of, preset):
    tuner = SGDSA(net, preset=preset, batch_size=16)
    for _ in range(10):
        tuner.step(loss_of)
    assert not isinstance(tuner.strategy, SelfTuning)
    assert (tuner.averages, tuner.probes.share) == (False, 1.0)
    assert tuner.param_groups[0]["momentum"] == 0.0


def test_so_are_options_of_the_loop(net):
    tuner = SGDSA(net, loop={"drop": Attribute("p", net.drop)})
    assert not isinstance(tuner.strategy, SelfTuning)


@pytest.mark.parametrize("given", [{"probe": "always"}, {"average": False}])
def test_both_can_be_chosen_by_themselves(net, make_batches, given):
    tuner = SGDSA(net, **given)
    for x, y in make_batches(80):
        tuner.step(lambda: F.cross_entropy(net(x), y))  # noqa: B023
    assert isinstance(tuner.strategy, SelfTuning)
    assert (tuner.probes.share == 1.0) == ("probe" in given)
    assert tuner.averages == ("probe" in given)


def test_the_rate_of_the_base_does_not_matter(digits, bits):
    runs = []
    for factor in (1.0, 0.01, 100.0):
        net = classifier()
        tuner = adamw(net, lr=1e-3 * factor, epochs=3)
        moves = train(net, tuner, digits, epochs=3)
        runs.append((moves, bits(net.state_dict()), bits(tuner.state_dict())))
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("scale", [2.0**-10, 2.0**10])
def test_the_unit_of_the_loss_does_not_matter_to_adamw(digits, scale):
    """A power of two changes no mantissa, and without an eps AdamW divides it out again."""
    runs = []
    for factor in (1.0, scale):
        net = classifier()
        base = torch.optim.AdamW(net.parameters(), eps=0.0)
        for p in net.parameters():  # no gradient of exactly zero, which would be 0 / 0
            p.register_hook(lambda g, f=factor: torch.where(g == 0, f * 1e-12, g))
        tuner = EmbeddedTuner(base, model=net, epochs=4)
        moves = train(net, tuner, digits, epochs=4, factor=factor)
        runs.append(([move.setting for move in moves], [move.loss / factor for move in moves]))
    assert runs[0] == runs[1]


def test_with_sgd_the_rates_scale_inversely(digits):
    """Up to a factor of three, as between seeds: the search comes to it from another side."""
    peaks = []
    for factor in (1.0, 2.0**-10, 2.0**10):
        net = classifier()
        tuner = sgd(net, epochs=6)
        train(net, tuner, digits, epochs=6, factor=factor)
        peaks.append(tuner.strategy.peak * factor)
        assert accuracy(net, tuner, digits) > 0.9
    assert all(1 / 3 < peak / peaks[0] < 3 for peak in peaks)


@BOTH
def test_a_step_without_closure_is_the_same(make, make_net, make_batches, bits):
    runs = []
    for style in ("closure", "loss"):
        net = make_net()
        tuner = make(net, total_steps=150)
        torch.manual_seed(1)
        for x, y in make_batches(150):
            loss_of = lambda x=x, y=y, net=net: F.cross_entropy(net(x), y)
            if style == "closure":
                tuner.step(loss_of)
            else:
                tuner.zero_grad()
                loss = loss_of()
                loss.backward()
                tuner.step(loss=loss, probe=loss_of)
        assert tuner.probes.share < 0.6
        runs.append((bits(net.state_dict()), bits(tuner.state_dict())))
    assert runs[0] == runs[1]


@BOTH
def test_propose_and_resolve_measure_every_step(make, net, make_batches):
    tuner = make(net, total_steps=100)
    for x, y in make_batches(100):
        tuner.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        tuner.propose(loss)
        with tuner.probing():
            new_loss = F.cross_entropy(net(x), y)
        assert tuner.resolve(new_loss).probed
    assert isinstance(tuner.strategy, SelfTuning)
    assert tuner.strategy.peak is not None
    assert (tuner.probes.steps, tuner.probes.share) == (100, 1.0)


def test_both_ways_end_at_similar_rates(digits):
    """Measured or not, the search is the same: the peaks are equal."""
    peaks = []
    for probe in ("always", "screened"):
        net = classifier()
        tuner = adamw(net, epochs=4, probe=probe)
        train(net, tuner, digits, epochs=4)
        peaks.append(tuner.strategy.peak)
    assert peaks[0] == peaks[1]


def test_groups_must_share_one_rate(net):
    groups = [{"params": net.first.parameters()}, {"params": net.last.parameters(), "lr": 0.5}]
    with pytest.raises(ValueError, match=r"EmbeddedTuner\(neighborhood=.*one learning rate.*0\.5"):
        EmbeddedTuner(torch.optim.AdamW(groups, lr=0.1), model=net)
    base = torch.optim.AdamW(groups, lr=0.1)
    tuner = EmbeddedTuner(base, model=net, neighborhood=grid(lr=[0.1]))
    assert not isinstance(tuner.strategy, SelfTuning)


@BOTH
@pytest.mark.parametrize(
    ("length", "error"),
    [
        ({"epochs": 3, "total_steps": 100}, ValueError),
        ({"epochs": 0}, ValueError),
        ({"total_steps": -5}, ValueError),
        ({"epochs": 2.5}, TypeError),
    ],
)
def test_a_length_that_is_none_is_refused(make, net, length, error):
    with pytest.raises(error) as caught:
        make(net, **length)
    for name, value in length.items():
        assert f"{name}=" in str(caught.value)
        assert repr(value) in str(caught.value)


def regression():
    """A small regression with outliers: its data and a net."""
    source = torch.Generator().manual_seed(3)
    x = torch.randn(2000, 8, generator=source)
    y = (x[:, :1] * x[:, 1:2]).sin() + 0.1 * torch.randn(2000, 1, generator=source)
    y[::50] *= 20
    torch.manual_seed(0)
    return x, y, nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("known", [True, False])
def test_a_run_ten_times_as_long_does_not_diverge(make, known, digits):
    net = classifier()
    tuner = make(net, **({"epochs": 140} if known else {}))
    moves = train(net, tuner, digits, epochs=140)
    assert all(math.isfinite(move.loss) for move in moves)
    assert accuracy(net, tuner, digits) > 0.93
    first = sum(move.loss for move in moves[:44])
    assert sum(move.loss for move in moves[-44:]) < 0.2 * first


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("known", [True, False])
def test_nor_does_one_on_a_regression_with_outliers(make, known):
    x, y, net = regression()
    tuner = make(net, **({"total_steps": 6000} if known else {}))
    source, losses = torch.Generator().manual_seed(1), []
    for _ in range(6000):
        chosen = torch.randint(2000, (BATCH,), generator=source)
        loss = tuner.step(lambda: F.mse_loss(net(x[chosen]), y[chosen]))  # noqa: B023
        losses.append(loss.item())
    assert all(map(math.isfinite, losses))
    with tuner.averaged(), torch.no_grad():
        averaged = F.mse_loss(net(x), y).item()
    nothing = F.mse_loss(torch.zeros_like(y), y).item()
    assert averaged < nothing
    assert sum(losses[-600:]) / 600 < 2 * nothing
    assert tuner.probes.rolled_back < 60


def test_the_strategy_may_be_given_by_itself(net):
    base = torch.optim.AdamW(net.parameters())
    for tuner in (
        EmbeddedTuner(base, model=net, strategy=SelfTuning(100)),
        SGDSA(net, strategy=SelfTuning(100)),
    ):
        assert isinstance(tuner.strategy, SelfTuning)
        assert tuner.averages


def test_an_objective_needs_something_to_be_given(net, loss_of):
    with pytest.raises(ValueError, match=r"step\(objective=...\) must be used with a neighborhood"):
        SGDSA(net).step(loss_of, objective=lambda: 0.5)


def test_options_of_the_loop_are_not_dropped_silently(net):
    loop = {"dropout": Attribute("p", net.drop)}
    base = torch.optim.AdamW(net.parameters())
    assert not isinstance(EmbeddedTuner(base, model=net, loop=loop).strategy, SelfTuning)
    assert not isinstance(SGDSA(net, loop=loop).strategy, SelfTuning)
