"""The guard brings a run back that breaks, and leaves one alone that is only noisy."""

import math

import pytest
import torch
from torch import nn

from annealtune.errors import NonFiniteLossError
from annealtune.optim.guard import EVERY, LossWatch
from annealtune.optim.self_tuner import SelfTuner
from tests.optim.self_tuner.classification import BASES, adamw, sgd, train


class TestARateThatBreaksLater:
    def test_the_run_goes_back_with_a_quarter_of_the_rate_and_ends_well(self):
        weight = nn.Parameter(torch.tensor([3.0, -2.0]))
        optimizer = SelfTuner(torch.optim.SGD([weight], lr=0.1), around=0.1)
        compute_loss = optimizer.record(lambda c: 0.5 * c * weight.square().sum())
        rates = []

        def loop():
            for step in range(600):
                optimizer.zero_grad()
                compute_loss(1.0 if step < 200 else 100.0).backward()  # breaks above 0.02
                optimizer.step()
                rates.append(optimizer.param_groups[0]["lr"])

        with pytest.warns(UserWarning, match="back to the averaged weights") as said:
            loop()

        assert weight.abs().max() < 1e-3
        assert rates[-1] < 0.02
        held = optimizer.races[-1].rate
        used = sorted(set(rates[199:]), reverse=True)
        assert used == pytest.approx([held / 4**cuts for cuts in range(len(used))])
        # A first loss that is not finite is put down to the data: it cuts nothing.
        assert len(said) - 1 <= len(used) - 1 <= len(said)
        assert {warning.filename for warning in said} == {__file__}  # they point to the caller
        assert optimizer.rate == rates[-1]

    def test_weights_that_turn_to_nan_are_brought_back(self):
        def change(loss, step):
            return loss * (math.nan if step == 300 else 1.0)

        for base in BASES:
            with pytest.warns(UserWarning, match="the loss broke") as said:
                run = train(base, change, steps=500)
            assert len(said) == 1
            assert run.last < 0.15 * run.first
            # One broken minibatch says nothing of the rate: it is the last one of the plan.
            assert run.optimizer.rate == pytest.approx(run.optimizer.races[-1].rate / 125)
            assert all(bool(p.isfinite().all()) for p in run.model.parameters())

    @pytest.mark.parametrize(
        "kind",
        [torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.Rprop, torch.optim.ASGD],
    )
    def test_every_base_goes_on_without_its_state(self, kind):
        def change(loss, step):
            return loss * (math.nan if step == 120 else 1.0)

        with pytest.warns(UserWarning, match="the loss broke"):
            run = train(
                lambda model: kind(model.parameters(), lr=0.01), change, steps=220, around=0.01
            )

        assert run.moved
        assert math.isfinite(run.last)
        assert run.last < run.first

    def test_a_loss_that_stays_broken_ends_with_a_clear_error(self):
        def change(loss, step):
            return loss * (math.nan if step >= 150 else 1.0)

        with (
            pytest.warns(UserWarning, match="the loss broke"),
            pytest.raises(NonFiniteLossError, match=r"SelfTuner.*must be finite.*look at the data"),
        ):
            train(adamw, change, steps=500)


class TestHealthyRuns:
    @pytest.mark.parametrize("base", BASES)
    def test_noisy_runs_are_left_alone(self, base):
        for seed in range(10):  # twenty with both bases; any warning is an error
            run = train(base, steps=140, batch=2, seed=seed)
            assert not run.events("broke")

    def test_a_long_run_with_batches_of_one_is_left_alone(self):
        run = train(sgd, steps=2000, batch=1, seed=2)

        assert run.optimizer._guard.share == 1.0

    @pytest.mark.parametrize("base", BASES)
    def test_a_rare_loss_of_another_size_breaks_nothing(self, base):
        run = train(base, lambda loss, step: loss + (100.0 if step % 30 == 7 else 0.0))

        assert run.optimizer._guard.share == 1.0
        assert run.last < 0.2 * run.first

    def test_losses_of_a_validation_with_gradients_on_do_not_count(self):
        weight = nn.Parameter(torch.tensor([3.0]))
        optimizer = SelfTuner(torch.optim.SGD([weight], lr=0.1), total_steps=300, around=0.1)
        compute_loss = optimizer.record(lambda target: (weight - target).square().sum())
        for step in range(300):
            optimizer.zero_grad()
            compute_loss(0.01 * (step % 3)).backward()
            optimizer.step()
            if step % 50 == 49:
                for _ in range(20):
                    compute_loss(100.0)  # no backward

        assert optimizer._guard.share == 1.0
        assert abs(weight.item()) < 0.1


class TestTheWatch:
    def seen(self, losses, sign=1.0):
        watch = LossWatch(sign)
        looks = []
        for loss in losses:
            watch.see([torch.tensor(loss)])
            if watch.is_due:
                looks.append(watch.look().is_high)
        return looks

    def test_it_looks_once_in_so_many_steps(self):
        assert self.seen([1.0] * (5 * EVERY)) == [False] * 5

    def test_all_that_was_learned_is_lost(self):
        fall = [2.0 - 0.05 * n for n in range(4 * EVERY)]
        assert self.seen([*fall, *[1.99] * 2 * EVERY])[-2:] == [False, True]
        assert not self.seen([*fall, *[1.0] * 2 * EVERY])[-1]

    def test_one_of_eight_may_be_anything_finite(self):
        usual = [1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 1.0, 1.0]
        assert self.seen([*usual, *usual[:-1], 1e9, *usual]) == [False] * 3
        assert self.seen([*usual, *usual[:-1], math.inf]) == [False, True]

    def test_unit_and_zero_change_nothing(self):
        usual = [1.0, 1.25, 0.75, 1.0, 1.5, 0.5, 1.0, 1.0]
        losses = [*usual, *usual, *[16.0] * 8, *usual, *[16.0] * 16, *usual]
        expected = self.seen(losses)
        assert expected == [False, False, False, False, False, True, False]
        assert self.seen([2.0**30 * loss for loss in losses]) == expected
        assert self.seen([loss - 512.0 for loss in losses]) == expected
        assert self.seen([-loss for loss in losses], sign=-1.0) == expected

    def test_a_loss_that_is_constant_at_first_is_no_start(self):
        usual = [1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 1.0, 1.0]
        assert self.seen([*[0.0] * (3 * EVERY), *usual, *usual]) == [False] * 5
