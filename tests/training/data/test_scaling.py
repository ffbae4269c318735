"""Inputs as a model is given them, against the formula."""

import numpy as np
import pytest
import torch

from annealtune.training.data import Batches
from annealtune.training.data.scaling import Scaling


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 5), (6, 3, 4, 5)])
def test_the_second_axis_has_a_mean_and_a_deviation(shape):
    inputs = torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 16
    mean, std = np.array([0.1, 0.5, -2.0]), np.array([0.3, 1.0, 7.0])
    found = Scaling(mean.tolist(), std.tolist(), 16.0, ndim=len(shape))(inputs)
    places = (1, 3, *[1] * (len(shape) - 2))
    expected = (inputs.double().numpy() / 16 - mean.reshape(places)) / std.reshape(places)
    assert np.allclose(found.numpy(), expected, atol=1e-5)


def test_in_place_it_is_the_same_to_the_last_bit():
    inputs = torch.rand(50, 3, 7, 7)
    scaling = Scaling((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 1.0, ndim=4)
    expected = scaling(inputs)
    assert torch.equal(scaling.in_place(inputs), expected)
    assert torch.equal(inputs, expected)


@pytest.mark.parametrize("inputs", [torch.rand(4, 3), torch.arange(12).view(4, 3)])
def test_without_a_mean_inputs_stay_as_they_are(inputs):
    assert Scaling((), (), 1.0, ndim=2)(inputs) is inputs


def test_minibatches_of_a_table():
    rows = torch.arange(12.0).view(4, 3)
    batches = Batches(
        rows, torch.zeros(4, 1), batch_size=3, seed=0, mean=(0, 1, 2), std=(1, 2, 4), scale=1.0,
        shuffle=False,
    )  # fmt: skip
    first, second = (inputs for inputs, _ in batches)
    assert first.tolist() == [[0, 0, 0], [3, 1.5, 0.75], [6, 3, 1.5]]
    assert second.tolist() == [[9, 4.5, 2.25]]
    assert rows[0].tolist() == [0, 1, 2]  # the data itself is not changed


def test_minibatches_of_tokens_are_whole_numbers():
    tokens = torch.arange(12).view(4, 3)
    (inputs, targets), _ = Batches(tokens, tokens, batch_size=3, seed=0, shuffle=False)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(inputs, tokens[:3])
