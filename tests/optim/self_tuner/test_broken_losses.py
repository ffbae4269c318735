"""Losses that are not finite: in one arm, in all, from the start, in single minibatches."""

import math
import warnings

import pytest
import torch
from torch import nn

from annealtune import NonFiniteLossError, SelfTuner, grid
from tests.optim.self_tuner.classification import BASES, adamw, sgd, train


def weights_are_finite(run):
    return all(bool(p.isfinite().all()) for p in run.model.parameters())


def nan_at(*steps):
    return lambda loss, step: loss * (math.nan if step in steps else 1.0)


def tuned(weight, **settings):
    base = torch.optim.SGD([weight], lr=0.1)
    return SelfTuner(base, nn.ParameterList([weight]), **settings)


@pytest.mark.parametrize("rates", [[0.01, 0.1, 1e30], [1e30, 0.01, 0.1]])
def test_an_arm_that_explodes_is_dropped_and_the_others_go_on(rates):
    """Also where it is the one in the model."""
    weight = nn.Parameter(torch.tensor([3.0, -2.0]))
    optimizer = tuned(weight, total_steps=600, neighborhood={"lr": rates})
    for _ in range(600):
        optimizer.step(lambda: weight.square().square().sum())
    (race,) = optimizer.races
    broken = rates.index(1e30)
    assert any(word in race.dropped[broken] for word in ("nan", "inf"))
    assert race.winner != broken
    assert weight.abs().max() < 0.3


@pytest.mark.parametrize("base", BASES)
class TestAllArms:
    @pytest.mark.parametrize("place", [0, 2])
    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_a_minibatch_in_the_race_is_passed_over(self, base, place, value):
        run = train(base, lambda loss, step: loss * (value if step == place else 1.0))
        assert run.optimizer.races[0].winner is not None
        assert run.last < 0.15 * run.first
        assert weights_are_finite(run)

    def test_many_in_a_row_in_the_middle_of_the_race(self, base):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = train(base, nan_at(2, 3, 4, 5))
        assert run.optimizer.races[0].winner is None
        assert run.moved
        assert run.last < run.first
        assert said or len(run.optimizer.races) > 1  # no silent end

    def test_nan_from_the_start_ends_with_an_error(self, base):
        with pytest.raises(NonFiniteLossError, match="SelfTuner"):
            train(base, lambda loss, step: loss * math.nan)


def test_where_every_rate_is_too_large_the_next_race_is_far_below():
    weight = nn.Parameter(torch.tensor([3.0, -2.0]))
    optimizer = tuned(weight, total_steps=2000, around=1e8)
    for _ in range(2000):
        optimizer.step(lambda: weight.square().square().sum())
    first, second = optimizer.races[:2]
    assert first.winner is None
    assert first.restarted
    assert max(s["lr"] for s in second.settings) < min(s["lr"] for s in first.settings)
    assert weight.abs().max() < 2.0


def test_a_first_gradient_of_nan_over_sgd_does_not_spoil_the_centre():
    """The first gradient decides where the race is held; one that is NaN must not."""
    runs = [train(sgd, made=60), train(sgd, nan_at(0), made=60)]
    usual, spoilt = (run.optimizer.races[0].settings[0]["lr"] for run in runs)
    assert spoilt == pytest.approx(usual, rel=1.0)


def test_a_step_after_the_error_says_the_same():
    model = nn.Linear(3, 1)
    optimizer = SelfTuner(adamw(model), model, total_steps=300)
    before = [p.detach().clone() for p in model.parameters()]

    def loop():
        for _ in range(20):
            optimizer.step(lambda: model(torch.full((4, 3), math.nan)).sum())

    for _ in range(2):
        with pytest.raises(NonFiniteLossError):
            loop()
    assert all(map(torch.equal, model.parameters(), before))


def test_a_minibatch_on_which_no_arm_has_a_finite_loss_counts_for_nobody(
    make_net, make_base, make_batches, loss_function, trained
):
    """No arm steps, and the race lasts as long as without it."""
    ends = []
    for spoilt in ((), (3, 7)):
        torch.manual_seed(0)
        net = make_net()
        opt = SelfTuner(make_base(net, "adamw"), net, neighborhood=grid(lr=[0.01, 0.02]))
        batches = make_batches(300)
        for at in spoilt:
            batches.insert(at, None)
        count = 0
        while opt.is_racing:
            batch = batches[count]
            count += 1
            if batch is None:
                opt.step(lambda: sum(p.sum() for p in net.parameters()) * math.nan)  # noqa: B023
            else:
                opt.step(lambda: loss_function(net)(*batch))  # noqa: B023
        ends.append((trained(net, opt), count - len(spoilt)))
    assert ends[0] == ends[1]
