"""Minibatches of one and four samples, and noise that is not repeated: no stall, no divergence."""

import functools

import numpy as np
import pytest
import torch

from tests.optim.self_tuner.classification import BASES, adamw, sgd, train


@functools.cache
def plain_adamw(batch, seed):
    return train(adamw, steps=300, batch=batch, seed=seed, tuned=False, options={"lr": 0.003}).last


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("batch", [1, 4])
def test_small_batches_end_near_plain_adamw(base, batch):
    ratios = []
    for seed in range(3):
        run = train(base, steps=300, batch=batch, seed=seed)
        assert run.moved
        bound = 0.85 if base is sgd else 0.75  # over SGD half a decade less than what won is taken
        assert run.last < bound * run.first, f"seed {seed} stalls at {run.last}"
        ratios.append(run.last / plain_adamw(batch, seed))

    assert np.exp(np.mean(np.log(ratios))) < 1.5
    assert max(ratios) < 3.0


def test_short_runs_of_adamw_do_not_stall():
    for seed in range(8):
        run = train(adamw, steps=210, batch=32, seed=seed)

        assert run.last < 0.8 * run.first, f"seed {seed} stalls at {run.last}"
        assert run.optimizer.races[0].rate > 1e-4


def test_batches_of_four_over_sgd_do_not_stall():
    for seed in range(6):
        run = train(sgd, steps=210, batch=4, seed=seed)

        assert run.last < 0.75 * run.first, f"seed {seed} stalls at {run.last}"


@pytest.mark.parametrize("base", BASES)
def test_noise_of_numpy_in_the_forward_does_not_stall(base):
    noise = np.random.default_rng(0)

    def forward(model, inputs, step):
        drawn = torch.as_tensor(noise.normal(0.0, 0.3, inputs.shape), dtype=inputs.dtype)
        return model(inputs + drawn)

    with pytest.warns(UserWarning, match="random numbers in torch's generators"):
        run = train(base, forward=forward)

    assert run.last < 0.35 * run.first
    assert run.optimizer.races[0].rate > 1e-4
    assert not run.events("broke")


@pytest.mark.parametrize("base", BASES)
def test_a_generator_of_ones_own_in_the_forward_does_not_stall(base):
    own = torch.Generator().manual_seed(0)

    def forward(model, inputs, step):
        kept = torch.rand(inputs.shape, generator=own) > 0.3
        return model(inputs * kept / 0.7)

    with pytest.warns(UserWarning, match="random numbers in torch's generators"):
        run = train(base, forward=forward)

    assert run.last < 0.7 * run.first
    assert run.optimizer.races[0].rate > 1e-4
