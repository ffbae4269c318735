"""The data set in memory: what it refuses, its subset, its split."""

import dataclasses

import pytest
import torch

from annealtune.training.data import Dataset, split, subset

IMAGES = torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1).expand(20, 1, 4, 6).contiguous()
LABELS = torch.arange(20) % 3
GOOD = {
    "name": "made-up",
    "train_inputs": IMAGES,
    "train_targets": LABELS,
    "test_inputs": IMAGES[:5],
    "test_targets": LABELS[:5],
    "classes": ("a", "b", "c"),
    "mean": (0.5,),
    "std": (0.25,),
}


def test_channels_and_size_are_those_of_the_images() -> None:
    dataset = Dataset(**GOOD)
    assert dataset.task.told() == {
        "input_shape": (1, 4, 6),
        "channels": 1,
        "image_size": (4, 6),
        "classes": 3,
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset.name = "other"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"train_inputs": IMAGES.float()}, ValueError, "test_inputs.*float32.*uint8"),
        ({"train_inputs": IMAGES.half()}, TypeError, "train_inputs"),
        ({"test_targets": LABELS[:5].int()}, TypeError, "test_targets"),
        ({"train_inputs": IMAGES[:, 0]}, ValueError, r"train_inputs.*got \(20, 4, 6\)"),
        ({"test_inputs": IMAGES[:0]}, ValueError, "test_inputs"),
        ({"train_targets": LABELS[:19]}, ValueError, r"train_targets.*\(19,\)"),
        ({"train_targets": LABELS + 1}, ValueError, "train_targets.*0..2, got 3"),
        ({"test_targets": LABELS[:5] - 1}, ValueError, "test_targets.*0..2, got -1"),
        ({"test_inputs": IMAGES[:5, :, :3]}, ValueError, r"test_inputs.*\(1, 3, 6\)"),
        ({"classes": ("a",)}, ValueError, "classes"),
        ({"classes": ("a", "b", "a")}, ValueError, "classes"),
    ],
)
def test_what_does_not_fit_together_is_refused(change, error, message) -> None:
    with pytest.raises(error, match=message):
        Dataset(**{**GOOD, **change})


def test_a_subset_is_fixed_by_its_seed_and_lies_within_a_larger_one() -> None:
    dataset = Dataset(**GOOD)
    small, large = subset(dataset, 4, seed=1), subset(dataset, 9, seed=1)
    assert torch.equal(small.train_inputs, large.train_inputs[:4])
    assert torch.equal(small.train_targets, small.train_inputs[:, 0, 0, 0].long() % 3)
    assert small.train_inputs[:, 0, 0, 0].unique().numel() == 4
    assert small.test_inputs is dataset.test_inputs
    assert not torch.equal(small.train_inputs, subset(dataset, 4, seed=2).train_inputs)
    assert len(subset(dataset, 20, seed=0).train_targets) == 20


@pytest.mark.parametrize("size", [0, 21, -1])
def test_a_subset_of_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"train_size = {size}: must be in 1..20"):
        subset(Dataset(**GOOD), size, seed=0)


def test_a_split_divides_by_its_seed() -> None:
    training, validation = split(100, 0.1, seed=5)
    assert (len(training), len(validation)) == (90, 10)
    assert torch.cat([training, validation]).sort().values.tolist() == list(range(100))
    assert torch.equal(validation, split(100, 0.1, seed=5)[1])
    assert not torch.equal(validation, split(100, 0.1, seed=6)[1])
    assert validation.tolist() != list(range(10))


@pytest.mark.parametrize(("count", "fraction"), [(10, 0.99), (10, 0.01), (0, 0.0)])
def test_a_split_that_leaves_a_set_empty_is_refused(count, fraction) -> None:
    with pytest.raises(ValueError, match="validation_fraction"):
        split(count, fraction, seed=0)
