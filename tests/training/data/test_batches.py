"""Minibatches: complete, normalised, reproducible, resumable anywhere."""

import io
from itertools import chain, islice

import numpy as np
import pytest
import torch

from annealtune.training.data import Batches
from annealtune.training.data.batches import Scaling

COUNT = 23
IMAGES = torch.randint(
    256, (COUNT, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)
LABELS = torch.arange(COUNT)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)


def make(**changes) -> Batches:
    options = {"batch_size": 5, "seed": 3, "mean": MEAN, "std": STD}
    return Batches(IMAGES, LABELS, **{**options, **changes})


def labels(batches: Batches) -> list[list[int]]:
    return [targets.tolist() for _, targets in batches]


def same(first, second) -> bool:
    return all(
        torch.equal(inputs, other_inputs) and torch.equal(targets, other_targets)
        for (inputs, targets), (other_inputs, other_targets) in zip(first, second, strict=True)
    )


def flat(minibatches: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(minibatches))


def test_an_epoch_holds_every_image_once_in_a_new_order() -> None:
    batches = make()
    first, second = labels(batches), labels(batches)
    assert [len(targets) for targets in first] == [5, 5, 5, 5, 3]
    assert len(batches) == 5
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(COUNT))
    assert first != second
    assert first[0] != sorted(first[0])


def test_another_seed_gives_another_order() -> None:
    assert labels(make(seed=3)) == labels(make(seed=3)) != labels(make(seed=4))


def test_without_reshuffling_the_minibatches_are_divided_once() -> None:
    batches = make(reshuffle=False)
    assert labels(batches) == labels(batches) == labels(make())
    assert batches.epoch == 2


def test_without_shuffling_the_images_come_as_they_are() -> None:
    batches = make(shuffle=False)
    assert flat(labels(batches)) == list(range(COUNT))


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
def test_inputs_are_the_labelled_images_normalised(shuffle: bool, channels_last: bool) -> None:
    batches = make(shuffle=shuffle, channels_last=channels_last, scale=200.0)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    memory = torch.channels_last if channels_last else torch.contiguous_format
    for inputs, targets in batches:
        assert inputs.dtype == torch.float32
        assert inputs.is_contiguous(memory_format=memory)
        torch.testing.assert_close(inputs, (IMAGES[targets] / 200.0 - mean) / std)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("taken", [0, 1, 4, 5, 6, 10, 15])
def test_a_run_resumes_anywhere_with_the_same_batches(taken, shuffle) -> None:
    def endless(batches):
        while True:
            yield from batches

    undisturbed = list(islice(endless(make(shuffle=shuffle)), 16))
    interrupted = make(shuffle=shuffle)
    stream = endless(interrupted)
    for _ in range(taken):
        next(stream)
    file = io.BytesIO()
    torch.save(interrupted.state_dict(), file)

    file.seek(0)
    resumed = make(shuffle=shuffle)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    rest = list(islice(endless(resumed), 16 - taken))
    assert same(rest, undisturbed[taken:])


def test_a_state_taken_after_the_last_minibatch_leaves_an_empty_rest_of_the_epoch() -> None:
    batches, resumed = make(), make()
    list(islice(batches, len(batches)))
    resumed.load_state_dict(batches.state_dict())
    assert (resumed.epoch, resumed.position) == (0, 5)
    assert list(resumed) == []
    assert (resumed.epoch, resumed.position) == (1, 0)


def test_nothing_touches_the_global_generator() -> None:
    before = torch.get_rng_state()
    batches = make()
    list(batches)
    list(batches.sample(2, epoch=0))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_sample_is_drawn_without_replacement_and_disturbs_nothing() -> None:
    batches = make()
    sample = [targets.tolist() for _, targets in batches.sample(3, epoch=4)]
    assert [len(targets) for targets in sample] == [5, 5, 5]
    assert len(set(flat(sample))) == 15
    assert sample == [targets.tolist() for _, targets in make().sample(3, epoch=4)]
    assert sample != [targets.tolist() for _, targets in batches.sample(3, epoch=5)]
    assert labels(batches) == labels(make())


def test_a_sample_is_never_larger_than_the_data() -> None:
    sample = list(make().sample(10, epoch=0))
    plain, _ = next(iter(make(shuffle=False, batch_size=COUNT)))
    assert sum(len(targets) for _, targets in sample) == COUNT
    for inputs, targets in sample:
        assert torch.equal(inputs, plain[targets])


# --- Normalised, against the formula ---


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
