"""Losses that are not finite: in one arm, in all, from the start, in single minibatches."""

import math
import warnings

import pytest
import torch
from torch import nn

from annealtune.errors import NonFiniteLossError
from annealtune.optim.self_tuner import SelfTuner
from tests.optim.self_tuner.classification import BASES, adamw, sgd, train


def weights_are_finite(run):
    return all(bool(p.isfinite().all()) for p in run.model.parameters())


def nan_at(*steps):
    return lambda loss, step: loss * (math.nan if step in steps else 1.0)


class TestOneArm:
    def test_an_arm_that_explodes_is_dropped_and_the_others_go_on(self):
        weight = nn.Parameter(torch.tensor([3.0, -2.0]))
        optimizer = SelfTuner(
            torch.optim.SGD([weight], lr=0.1),
            total_steps=600,
            neighborhood={"lr": [0.01, 0.1, 1e30]},
        )
        for _ in range(600):
            optimizer.step(lambda: weight.square().square().sum())

        (race,) = optimizer.races
        assert race.settings[2]["lr"] == 1e30
        assert any(word in race.dropped[2] for word in ("nan", "inf"))
        assert race.winner in (0, 1)
        assert weight.abs().max() < 0.3

    def test_the_arm_in_the_model_may_be_the_one_that_explodes(self):
        weight = nn.Parameter(torch.tensor([3.0, -2.0]))
        optimizer = SelfTuner(
            torch.optim.SGD([weight], lr=0.1),
            total_steps=600,
            neighborhood={"lr": [1e30, 0.01, 0.1]},
        )
        for _ in range(600):
            optimizer.step(lambda: weight.square().square().sum())

        assert optimizer.races[0].winner in (1, 2)
        assert weight.abs().max() < 0.3

    def test_infinite_losses_break_an_arm_whose_weights_are_finite(self):
        weight = nn.Parameter(torch.tensor([3.0]))

        def compute_loss():
            loss = (weight - 1.0).square().sum()
            return loss if weight.abs().max() < 4.0 else loss * math.inf

        optimizer = SelfTuner(torch.optim.SGD([weight], lr=0.1), total_steps=400, around=0.5)
        for _ in range(400):
            optimizer.step(compute_loss)

        assert optimizer.races[0].dropped
        assert abs(weight.item() - 1.0) < 0.01


@pytest.mark.parametrize("base", BASES)
class TestAllArms:
    def test_a_minibatch_of_nan_in_the_race_is_passed_over(self, base):
        spoilt = train(base, nan_at(2))

        assert len(spoilt.optimizer.races[0].dropped) < 5
        assert spoilt.optimizer.races[0].winner is not None
        assert spoilt.last < 0.15 * spoilt.first
        assert not spoilt.events("broke")

    def test_single_ones_in_the_data_in_the_race_and_after_it(self, base):
        with pytest.warns(UserWarning, match="the loss broke") as said:
            run = train(base, nan_at(1, 3, 250))

        assert len(said) == 1  # of the one outside the race
        assert run.last < 0.2 * run.first
        assert weights_are_finite(run)

    def test_many_in_a_row_in_the_middle_of_the_race(self, base):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = train(base, lambda loss, step: loss * (math.nan if 2 <= step < 6 else 1.0))

        assert run.optimizer.races[0].winner is None
        assert "all broke" in run.optimizer.races[0].reason
        assert run.moved
        assert run.last < run.first
        assert said or len(run.optimizer.races) > 1  # no silent end

    def test_nan_from_the_start_ends_with_a_clear_error(self, base):
        with pytest.raises(
            NonFiniteLossError, match=r"SelfTuner.*first weights must be finite.*look at the data"
        ):
            train(base, lambda loss, step: loss * math.nan)

    def test_a_nan_loss_at_the_very_first_step_alone_is_survived(self, base):
        run = train(base, nan_at(0))

        assert run.last < 0.15 * run.first
        assert weights_are_finite(run)

    def test_infinity_counts_as_nan_does(self, base):
        run = train(base, lambda loss, step: loss * (math.inf if step == 2 else 1.0))

        assert run.last < 0.15 * run.first
        assert not run.events("broke")


class TestEveryRateTooLarge:
    def test_the_next_race_is_far_below(self):
        weight = nn.Parameter(torch.tensor([3.0, -2.0]))
        optimizer = SelfTuner(torch.optim.SGD([weight], lr=0.1), total_steps=2000, around=1e8)
        compute_loss = optimizer.record(lambda: weight.square().square().sum())
        for _ in range(2000):
            optimizer.zero_grad()
            compute_loss().backward()
            optimizer.step()

        first, second = optimizer.races[:2]
        assert first.winner is None
        assert first.restarted
        assert max(s["lr"] for s in second.settings) < min(s["lr"] for s in first.settings)
        assert weight.abs().max() < 2.0


def test_a_first_gradient_of_nan_over_sgd_does_not_spoil_the_centre():
    """The first gradient decides where the race is held; one that is NaN must not."""
    usual = train(sgd)
    spoilt = train(sgd, nan_at(0))

    rates = [run.optimizer.races[0].settings[0]["lr"] for run in (usual, spoilt)]
    assert rates[1] == pytest.approx(rates[0], rel=1.0)


def test_a_step_after_the_error_says_the_same():
    model = nn.Linear(3, 1)
    optimizer = SelfTuner(adamw(model), model=model, total_steps=300)
    compute_loss = optimizer.record(lambda: model(torch.full((4, 3), math.nan)).sum())
    before = [p.detach().clone() for p in model.parameters()]

    def loop():
        for _ in range(20):
            optimizer.zero_grad()
            compute_loss().backward()
            optimizer.step()

    for _ in range(2):
        with pytest.raises(NonFiniteLossError, match="must be finite"):
            loop()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
