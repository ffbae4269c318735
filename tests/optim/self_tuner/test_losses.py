"""Unit, sign and zero of the loss, what it is at first, how noisy: none of them stalls a run.

A warning that a test does not expect is an error, so the guard has not acted where none is named.
"""

import functools
import statistics
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from annealtune import SelfTuner
from tests.optim.self_tuner.classification import BASES, adamw, sgd, train


@pytest.fixture(scope="module")
def usual():
    """The runs with the loss as it is."""
    runs = {base: train(base) for base in BASES}
    assert all(run.last < 0.1 * run.first for run in runs.values())
    return runs


def scaled_options(base, factor):
    """Adam's eps has the unit of a gradient, so it must follow."""
    return {"eps": 1e-8 * factor} if base is adamw else {}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("factor", [1e-6, 1e6, 2.0**20])
def test_a_factor_on_the_loss_changes_no_decision(usual, base, factor):
    run = train(base, lambda loss, step: loss * factor, options=scaled_options(base, factor))
    assert run.decisions == usual[base].decisions
    assert run.last == pytest.approx(usual[base].last, rel=0.1)
    if base is adamw and factor == 2.0**20:  # changes no bit
        assert all(map(torch.equal, run.model.parameters(), usual[base].model.parameters()))


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_the_rate_of_sgd_has_the_unit_of_the_loss(usual, factor):
    run = train(sgd, lambda loss, step: loss * factor)
    assert run.last == pytest.approx(usual[sgd].last, rel=0.1)
    rate = usual[sgd].optimizer.races[0].rate
    assert run.optimizer.races[0].rate * factor == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize("base", BASES)
def test_a_constant_in_the_loss_does_no_harm(usual, base):
    assert train(base, lambda loss, step: loss + 1e5).last < 2 * usual[base].last
    # Where every loss is the same number the race learns nothing, the run does.
    run = train(base, lambda loss, step: loss + 1e8)
    assert run.last < 0.6 * run.first
    assert train(base, lambda loss, step: loss - 50.0).last == pytest.approx(
        usual[base].last, rel=0.1
    )


STARTS = {  # how the loss begins, where the race is held, how low the run must come
    "zero": (lambda loss, step: loss * (step >= 20), 20, 0.15),
    "constant": (lambda loss, step: loss if step >= 30 else loss * 0.0 + 1.1, 30, 0.15),
    "zero during the race": (lambda loss, step: loss * (not 5 <= step < 15), 0, 0.4),
}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(("change", "place", "bound"), STARTS.values(), ids=STARTS)
def test_a_start_that_says_nothing(base, change, place, bound):
    run = train(base, change)
    assert run.last < bound * run.first
    assert run.optimizer.races[0].step == place
    if place:  # weight decay moves the weights meanwhile
        run = train(base, change, options={"weight_decay": 0.01})
        assert run.last < bound * run.first


@pytest.mark.parametrize(("base", "bound"), [(adamw, 0.15), (sgd, 1.0)])
def test_a_loss_that_ramps_up(base, bound):
    """The rate of SGD has the unit of the loss, and the loss is ten times larger after the race.

    So every rate that a race can find there is too large later; the loss stays finite, though.
    """
    for seed in range(1 if base is adamw else 3):
        run = train(base, lambda loss, step: loss * min(1.0, step / 100), seed=seed)
        assert run.last < bound * run.first


@pytest.mark.parametrize("base", BASES)
def test_zero_from_the_first_to_the_last(base):
    with pytest.warns(UserWarning, match="gradient") as said:
        run = train(base, lambda loss, step: loss * 0.0, steps=250)
    assert len(said) == 1
    assert not run.moved
    assert run.optimizer.is_racing
    assert run.optimizer.extra_steps == 0


def test_a_late_gradient_starts_the_race():
    weight = nn.Parameter(torch.full((3,), 5.0))
    base = torch.optim.SGD([weight], lr=0.1)
    optimizer = SelfTuner(base, nn.ParameterList([weight]), total_steps=600)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(600):
            optimizer.step(lambda now=step: weight.square().sum() * (now >= 150))
    assert len(said) == 1
    assert optimizer.races[0].step == 150
    assert weight.abs().max() < 0.5


@functools.cache
def plain_adamw(batch, seed):
    return train(adamw, steps=300, batch=batch, seed=seed, tuned=False, options={"lr": 0.003}).last


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("batch", [1, 4])
def test_small_batches_end_near_plain_adamw(base, batch):
    """With batches of one a race over SGD can miss by a factor of 20: seed 1 ends at 0.81.

    The others end at 0.19 to 0.42 of their first loss, and with batches of four all below 0.56.
    """
    runs = [train(base, steps=300, batch=batch, seed=seed) for seed in range(3)]
    left = [run.last / run.first for run in runs]
    assert max(left) < (0.85 if base is sgd and batch == 1 else 0.75)
    assert statistics.median(left) < 0.5
    ratios = [run.last / plain_adamw(batch, seed) for seed, run in enumerate(runs)]
    assert statistics.geometric_mean(ratios) < 1.5
    assert max(ratios) < 3.0


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(("kind", "bound"), [("numpy", 0.35), ("generator", 0.7)])
def test_noise_that_is_not_repeated_does_not_stall(base, kind, bound):
    noise, own = np.random.default_rng(0), torch.Generator().manual_seed(0)

    def forward(model, inputs, step):
        if kind == "numpy":
            drawn = torch.as_tensor(noise.normal(0.0, 0.3, inputs.shape), dtype=inputs.dtype)
            return model(inputs + drawn)
        return model(inputs * (torch.rand(inputs.shape, generator=own) > 0.3) / 0.7)

    with pytest.warns(UserWarning, match="generators"):
        run = train(base, forward=forward)
    assert run.last < bound * run.first
    assert run.optimizer.races[0].rate > 1e-4
