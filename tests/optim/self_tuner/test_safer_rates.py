"""Runs in which a smaller rate wins because a larger one would do more harm."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SelfTuner, grid
from annealtune.annealing.race import Outcome, Standings

HARM = "a larger rate would do more harm than a smaller one"
CENTRE = 3e-3
ROWS, FEATURES = 512, 16


def learnt(seed):
    """A net that is at the minimum of its loss already, and minibatches of its noisy rows."""
    source = torch.Generator().manual_seed(seed)
    inputs = torch.randn(ROWS, FEATURES, generator=source)
    truth = torch.randn(FEATURES, 1, generator=source)
    targets = inputs @ truth + torch.randn(ROWS, 1, generator=source)
    net = nn.Linear(FEATURES, 1, bias=False)
    net.weight.data.copy_(torch.linalg.lstsq(inputs.double(), targets.double()).solution.T)
    rows = torch.randint(ROWS, (200, 32), generator=source)
    return net, [(inputs[chosen], targets[chosen]) for chosen in rows]


def near_a_cliff(seed=0):
    """Two weights whose loss is a bowl: four times the best rate grows along the steep one."""
    source = torch.Generator().manual_seed(seed)
    net = nn.Linear(2, 1, bias=False)
    net.weight.data.copy_(torch.tensor([[0.01, 1.0]]))
    inputs = torch.randn(200, 16, 2, generator=source) * torch.tensor([3.0, 1.0])
    return net, [(x, torch.zeros(16, 1)) for x in inputs]


def raced(base, net, batches, **options):
    """Race to the end; return the tuner, its last race under way, and the minibatches left."""
    opt = SelfTuner(base, model=net, **options)
    race = None
    for number, (x, y) in enumerate(batches, start=1):
        opt.step(lambda: F.mse_loss(net(x), y))  # noqa: B023
        race = opt._races.race or race
        if not opt.is_racing:
            return opt, race, batches[number:]
    raise AssertionError("still racing")


def by_hand(net, base, batches, rate):
    for group in base.param_groups:
        group["lr"] = rate
    for x, y in batches:
        base.zero_grad()
        F.mse_loss(net(x), y).backward()
        base.step()


def go_on(opt, net, batches):
    for x, y in batches:
        opt.step(lambda: F.mse_loss(net(x), y))  # noqa: B023


def test_a_net_that_has_learnt_is_trained_below_the_centre_and_told_why(monkeypatch):
    def last_races():
        for seed in range(16):
            net, batches = learnt(seed)
            opt, _, _ = raced(torch.optim.AdamW(net.parameters()), net, batches, total_steps=600)
            info = opt.races[-1]
            assert opt.rate == info.rate == info.settings[info.winner]["lr"]
            assert (HARM in opt.summary()) == (info.reason == HARM)
            yield info

    with_rule = list(last_races())
    monkeypatch.setattr(Standings, "safer", lambda _, outcome, __: outcome)
    without = list(last_races())

    assert sum(info.rate < CENTRE for info in with_rule) >= 15
    assert sum(info.rate < CENTRE for info in without) <= 10
    for info, otherwise in zip(with_rule, without, strict=True):
        if info.reason == HARM:
            assert (otherwise.rate, info.rate) == (CENTRE, CENTRE / 4)
        else:
            assert (otherwise.rate, otherwise.reason) == (info.rate, info.reason)


def first_decided_by_harm():
    for seed in range(16):
        net, batches = learnt(seed)
        twin = copy.deepcopy(net)
        opt, race, rest = raced(torch.optim.AdamW(net.parameters()), net, batches)
        if opt.races[-1].reason == HARM:
            return net, twin, opt, race, batches, rest
    raise AssertionError("no such run")


def test_an_arm_that_is_still_there_goes_on_from_where_it_is(trained):
    net, twin, opt, race, batches, rest = first_decided_by_harm()
    info = opt.races[-1]
    assert info.winner in race.standings.live
    assert not info.restarted
    go_on(opt, net, rest[:20])
    base = torch.optim.AdamW(twin.parameters())
    by_hand(twin, base, batches[: info.minibatches + 20], info.rate)
    assert trained(net, opt) == trained(twin, base)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_dropped_arm_starts_again_from_the_first_weights(trained, momentum):
    net, batches = near_a_cliff()
    twin = copy.deepcopy(net)
    options = {"lr": 0.05, "momentum": momentum}
    opt, _, rest = raced(
        torch.optim.SGD(net.parameters(), **options), net, batches, around=0.05 * (1 - momentum)
    )
    (info,) = opt.races
    assert info.reason == HARM
    assert info.winner in info.dropped
    assert info.restarted
    assert opt.rate == info.rate == info.settings[info.winner]["lr"]
    assert torch.equal(net.weight, twin.weight)
    base = torch.optim.SGD(twin.parameters(), **options)
    go_on(opt, net, rest[:50])
    by_hand(twin, base, rest[:50], info.rate)
    assert trained(net, opt) == trained(twin, base)
    assert net.weight.isfinite().all()


@pytest.mark.parametrize("how", ["neighborhood", "objective"])
@pytest.mark.parametrize("seed", range(3))
def test_whoever_gives_settings_or_an_objective_gets_what_the_verdict_says(how, seed):
    """The same race, where the rule would have chosen another arm."""
    net, batches = near_a_cliff(seed)
    rates = [0.05 * 4.0**n for n in range(-2, 3)]
    options = {
        "neighborhood": {"neighborhood": grid(lr=rates)},
        "objective": {"around": 0.05, "objective": lambda: unseen_losses(net, batches)},
    }
    base = torch.optim.SGD(net.parameters(), lr=0.05)
    opt, race, _ = raced(base, net, batches, **options[how])
    (info,) = opt.races
    assert info.winner == min(
        range(5), key=lambda arm: (math.isnan(info.scores[arm]), info.scores[arm])
    )
    assert opt.rate == rates[info.winner]
    falling = [4, 3, 2, 1, 0]
    safer = race.standings.safer(Outcome(info.winner, info.reason), falling)
    assert safer == (info.winner - 1, HARM)


def unseen_losses(net, batches):
    return [float(F.mse_loss(net(x), y)) for x, y in batches[100:120]]
