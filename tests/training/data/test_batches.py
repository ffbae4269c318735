"""Minibatches: complete, normalised, reproducible, resumable anywhere."""

import io
from itertools import chain, islice

import pytest
import torch

from annealtune.training.data import Batches
from annealtune.training.data.augmentation import crop_flip
from annealtune.training.data.randomness import Purpose

COUNT = 23
IMAGES = torch.randint(
    256, (COUNT, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)
LABELS = torch.arange(COUNT)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)


def make(**changes) -> Batches:
    options = {"batch_size": 5, "seed": 3, "mean": MEAN, "std": STD, "augment": crop_flip}
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


def test_another_purpose_gives_another_order() -> None:
    held_out = labels(make(order=Purpose.HELD_OUT_ORDER))
    assert sorted(flat(held_out)) == list(range(COUNT))
    assert held_out != labels(make())


def test_how_many_are_left() -> None:
    batches = make()
    assert batches.left == 5
    minibatches = iter(batches)
    first = next(minibatches)
    assert batches.left == 4
    assert len(first.inputs) == len(first.labels) == 5
    assert len(list(minibatches)) == 4
    assert batches.left == 5, "of the next epoch"


def test_without_reshuffling_the_minibatches_are_divided_once() -> None:
    batches = make(reshuffle=False)
    assert labels(batches) == labels(batches) == labels(make())
    assert batches.epoch == 2


def test_without_shuffling_the_images_come_as_they_are() -> None:
    batches = make(shuffle=False, augment=None)
    assert flat(labels(batches)) == list(range(COUNT))


def test_the_smaller_last_minibatch_can_be_dropped() -> None:
    batches = make(drop_last=True)
    assert [len(targets) for targets in labels(batches)] == [5, 5, 5, 5] == [5] * len(batches)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
def test_inputs_are_the_labelled_images_normalised(shuffle: bool, channels_last: bool) -> None:
    batches = make(shuffle=shuffle, augment=None, channels_last=channels_last, scale=200.0)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    memory = torch.channels_last if channels_last else torch.contiguous_format
    for inputs, targets in batches:
        assert inputs.dtype == torch.float32
        assert inputs.is_contiguous(memory_format=memory)
        torch.testing.assert_close(inputs, (IMAGES[targets] / 200.0 - mean) / std)


def test_the_images_stay_as_they_are() -> None:
    before = IMAGES.clone()
    for shuffle in (True, False):
        list(make(shuffle=shuffle))
    assert torch.equal(IMAGES, before)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("taken", range(16))
def test_a_run_resumes_anywhere_with_the_same_batches_and_augmentation(taken, shuffle) -> None:
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


def test_a_loop_left_in_the_middle_continues_there() -> None:
    batches = make()
    first = next(iter(batches))[1].tolist()
    assert [first, *labels(batches)] == labels(make())


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


def test_a_sample_is_not_augmented_and_never_larger_than_the_data() -> None:
    sample = list(make().sample(10, epoch=0))
    plain, _ = next(iter(make(shuffle=False, augment=None, batch_size=COUNT)))
    assert sum(len(targets) for _, targets in sample) == COUNT
    for inputs, targets in sample:
        assert torch.equal(inputs, plain[targets])


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 4},
        {"batch_size": 6},
        {"shuffle": False},
        {"reshuffle": False},
        {"drop_last": True},
        {"augment": None},
    ],
)
def test_a_state_of_other_minibatches_is_refused(changes) -> None:
    with pytest.raises(ValueError, match=f"must be of .*'{next(iter(changes))}'"):
        make().load_state_dict(make(**changes).state_dict())


@pytest.mark.parametrize("change", [{"position": 6}, {"position": -1}, {"epoch": -1}])
def test_a_state_outside_the_epoch_is_refused(change) -> None:
    with pytest.raises(ValueError, match=r"position must be in 0..5, got"):
        make().load_state_dict({**make().state_dict(), **change})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make(batch_size=0), "23 samples give no minibatch of 0"),
        (lambda: make(batch_size=24, drop_last=True), "23 samples give no minibatch of 24"),
        (lambda: make(mean=(0.5,)), "each of the 3 channels"),
        (lambda: list(make(seed=-1)), "must not be negative, got -1"),
        (lambda: list(make().sample(0, epoch=0)), "must be positive, got 0"),
        (
            lambda: Batches(IMAGES.double(), LABELS, batch_size=1, seed=0, mean=MEAN, std=STD),
            "float32 or int64 inputs.*got torch.float64",
        ),
        (
            lambda: Batches(IMAGES, LABELS[1:], batch_size=1, seed=0, mean=MEAN, std=STD),
            "22 targets",
        ),
    ],
)
def test_impossible_minibatches_are_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
