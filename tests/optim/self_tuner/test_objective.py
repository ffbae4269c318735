"""A black-box objective judges the arms at the end of a race."""

import math

import pytest
import torch
from torch.nn import functional as F

from annealtune import SelfTuner, grid

RATES = [0.05, 0.1, 0.2]


def distance(net, start):
    """How far the weights have come: small for the smallest rate."""
    pairs = zip(net.parameters(), start, strict=True)
    return math.sqrt(sum(float((p - w).square().sum()) for p, w in pairs))


@pytest.fixture
def race(make_run, make_batches, race_through, trained):
    """Run a race that an objective of (net, first weights) decides."""

    def run(objective, **options):
        torch.manual_seed(0)
        cell = {}
        net, opt, step = make_run(
            neighborhood=grid(lr=RATES),
            warmup=0,
            objective=None if objective is None else lambda: objective(cell["net"], cell["start"]),
            **options,
        )
        cell["net"], cell["start"] = net, [p.detach().clone() for p in net.parameters()]
        race_through(opt, step, make_batches(300))
        return net, opt, trained(net, opt)

    return run


@pytest.mark.parametrize("sign", [1, -1])
def test_it_decides(race, sign):
    _, opt, _ = race(lambda net, start: sign * distance(net, start))
    assert opt.races[0].winner == (0 if sign == 1 else 2)
    assert opt.lr == (RATES[0] if sign == 1 else RATES[2])


def test_it_may_do_anything_to_the_model(race):
    """Round the weights in place, draw numbers, leave evaluation mode on, move statistics."""

    def quantised(net, start):
        value = distance(net, start)
        torch.rand(5)
        net(torch.randn(8, 6))
        net.eval()
        for p in net.parameters():
            p.copy_(p.round())
        return value

    assert race(quantised)[2] == race(distance)[2]
    assert race(quantised)[0].training


def test_one_that_does_not_see_the_weights_warns_and_the_incumbent_wins(race):
    """The base has the second rate."""
    with pytest.warns(UserWarning, match="objective"):
        _, opt, _ = race(lambda net, start: [1.0, 2.0, 3.0])
    assert opt.races[0].winner == 1


def test_so_it_is_for_rates_around_a_centre():
    torch.manual_seed(0)
    net, other = torch.nn.Linear(20, 3), torch.nn.Linear(20, 3)
    inputs, classes = torch.randn(512, 20), torch.randint(3, (512,))
    opt = SelfTuner(
        torch.optim.AdamW(net.parameters()),
        net,
        total_steps=300,
        objective=lambda: F.cross_entropy(other(inputs), classes),
    )

    def loop():
        while opt.is_racing:
            opt.step(lambda: F.cross_entropy(net(inputs), classes))

    with pytest.warns(UserWarning, match="objective"):
        loop()
    (race,) = opt.races
    assert race.rate == 3e-3


def test_an_arm_without_a_finite_value_is_out(race):
    seen = []

    def objective(net, start):
        seen.append(distance(net, start))
        return math.nan if seen[-1] == min(seen) else seen[-1]  # the first, and smaller ones

    _, opt, _ = race(objective)
    info = opt.races[0]
    judged_out = [arm for arm, why in info.dropped.items() if "nan" in why]
    assert judged_out
    assert info.winner not in judged_out
    assert all(math.isnan(info.scores[arm]) for arm in judged_out)


def test_where_no_arm_has_a_finite_value_the_incumbent_wins(race):
    with pytest.warns(UserWarning, match="objective"):
        _, opt, _ = race(lambda net, start: math.inf)
    assert opt.races[0].winner is not None


@pytest.mark.parametrize("wrong", ["good", None, [None], []])
def test_what_is_no_number_is_refused(race, wrong):
    with pytest.raises(TypeError, match="objective"):
        race(lambda net, start: wrong)


def test_after_a_failure_the_race_can_be_ended(make_run, make_batches):
    """An exception from the objective blames nobody else afterwards."""
    failures = [True]

    def objective():
        if failures:
            failures.pop()
            raise OSError("disk")
        return float(net.last.weight.sum())

    net, opt, step = make_run(neighborhood=grid(lr=RATES), objective=objective)
    batches = iter(make_batches(300))

    def train():
        for x, y in batches:
            step(x, y)

    with pytest.raises(OSError, match="disk"):
        train()
    step(*next(batches))
    assert not opt.is_racing
