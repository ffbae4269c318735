"""Runs whose first losses say nothing: zeros, ramps, constants, no gradient at all."""

import warnings

import pytest
import torch
from torch import nn

from annealtune.optim.self_tuner import SelfTuner
from tests.optim.self_tuner.classification import BASES, sgd, train


@pytest.mark.parametrize("base", BASES)
class TestWhateverTheStart:
    def test_zero_at_first(self, base):
        run = train(base, lambda loss, step: loss * (0.0 if step < 20 else 1.0))

        assert run.last < 0.15 * run.first
        assert run.optimizer.races[0].step == 20  # the race waits for a gradient

    def test_a_ramp(self, base):
        if base is sgd:  # the rate that a race finds for it is too large once the loss has grown
            with pytest.warns(UserWarning, match="the loss broke"):
                run = train(base, lambda loss, step: loss * min(1.0, step / 100))
            assert run.last < run.first
            return
        run = train(base, lambda loss, step: loss * min(1.0, step / 100))

        assert run.last < 0.15 * run.first
        assert not run.events("broke")

    def test_constant_at_first(self, base):
        run = train(base, lambda loss, step: loss if step >= 30 else loss * 0.0 + 1.1)

        assert run.last < 0.15 * run.first
        assert run.optimizer.races[0].step == 30

    def test_constant_at_first_with_weight_decay(self, base):
        run = train(
            base,
            lambda loss, step: loss if step >= 30 else loss * 0.0 + 1.1,
            options={"weight_decay": 0.01},
        )

        assert run.last < 0.15 * run.first

    def test_zero_during_the_race(self, base):
        run = train(base, lambda loss, step: loss * (0.0 if 5 <= step < 15 else 1.0))

        assert run.last < 0.4 * run.first

    def test_zero_from_the_first_to_the_last(self, base):
        with pytest.warns(UserWarning, match="no gradient in the first 100 steps") as said:
            run = train(base, lambda loss, step: loss * 0.0, steps=250)

        assert len(said) == 1
        assert not run.moved
        assert run.optimizer.is_racing
        assert run.optimizer.extra_steps == 0


def test_a_late_gradient_starts_the_race():
    weight = nn.Parameter(torch.full((3,), 5.0))
    optimizer = SelfTuner(torch.optim.SGD([weight], lr=0.1), total_steps=600)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(600):
            optimizer.step(lambda now=step: weight.square().sum() * (now >= 150))

    assert ["no gradient" in str(warning.message) for warning in said] == [True]
    assert optimizer.races[0].step == 150
    assert weight.abs().max() < 0.5
