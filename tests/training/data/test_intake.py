"""Torch Datasets read into memory, and those that cannot be."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from annealtune.training.data import intake
from annealtune.training.data.intake import read_part


class Listed(Dataset):
    """The samples of a list."""

    def __init__(self, samples, **attributes):
        self.samples = samples
        vars(self).update(attributes)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        return self.samples[number]


def test_samples_are_stacked_in_their_order():
    samples = Listed([(torch.tensor([1.0, 2.0]), 0), (torch.tensor([3.0, 4.0]), 1)])
    part = read_part("train", samples, None)
    assert part.inputs.tolist() == [[1, 2], [3, 4]]
    assert part.targets.tolist() == [0, 1]
    assert (part.inputs.dtype, part.targets.dtype) == (torch.float32, torch.int64)


def test_a_part_of_a_data_set():
    whole = TensorDataset(torch.arange(10.0).view(5, 2), torch.arange(5))
    part = read_part("train", Subset(whole, [4, 1]), None)
    assert part.inputs.tolist() == [[8, 9], [2, 3]]
    assert part.targets.tolist() == [4, 1]


def test_names_of_classes_are_found():
    samples = Listed([([1.0], 0), ([2.0], 1)], classes=["cat", "dog"])
    assert read_part("train", samples, None).class_names == ("cat", "dog")


def test_pictures_become_channels_first():
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    samples = Listed([(Image.fromarray(pixels), 0)])
    part = read_part("train", samples, None)
    assert torch.equal(part.inputs[0], torch.from_numpy(pixels).permute(2, 0, 1))
    grey = Listed([(Image.fromarray(pixels[:, :, 0]), 0)])
    assert read_part("train", grey, None).inputs.shape == (1, 1, 2, 3)


@pytest.mark.parametrize("dtype", [">f4", "<f4", ">i8", "<i8", ">u2", "<u2"])
def test_numbers_of_either_byte_order(dtype):
    numbers = np.array([[1, 2], [3, 400]], dtype=dtype)
    part = read_part("train", (numbers, numbers[:, 0]), None)
    assert part.inputs.tolist() == [[1, 2], [3, 400]]
    assert part.targets.tolist() == [1, 3]


def test_numbers_of_every_size():
    for dtype, found in (
        ("uint16", torch.int64),
        ("int8", torch.int64),
        ("float16", torch.float32),
    ):
        part = read_part("train", (np.ones((2, 3), dtype), [0.5, 1.0]), None)
        assert part.inputs.dtype == found
        assert part.inputs.tolist() == [[1, 1, 1]] * 2


class Endless(IterableDataset):
    def __iter__(self):
        yield 1


class Broken(Listed):
    def __getitem__(self, number):
        raise OSError("disk on fire")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (Endless(), TypeError, "IterableDataset; read it into tensors"),
        (
            DataLoader(TensorDataset(torch.zeros(2, 1))),
            TypeError,
            "got a DataLoader; return its .dataset",
        ),
        (3, TypeError, "train must be a torch Dataset or a tuple"),
        (Listed([]), ValueError, "must not be empty, got a Listed of length 0"),
        (Listed([1.0]), TypeError, r"train\[0\] must be a pair \(input, target\), got float"),
        (Listed([{"x": 1}]), TypeError, "must be a pair.*got dict"),
        (Listed([([1.0], 0), ([1.0, 2.0], 0)]), ValueError, r"train\[1\].*\(2,\).*first is \(1,\)"),
        (Listed([([1.0], 0), ([1.0], 0.5)]), ValueError, r"train\[1\]: all targets.*float32"),
        (Listed([("text", 0)]), TypeError, r"train\[0\] inputs must be numbers, got str"),
        (Broken([1]), ValueError, r"train\[0\] failed: OSError: disk on fire"),
    ],
)
def test_what_cannot_be_read(given, error, message):
    with pytest.raises(error, match=message):
        read_part("train", given, None)


def test_more_than_fits_into_memory(monkeypatch):
    """Two samples of three floats and a label: 2 * (3 * 4 + 8) = 40 bytes."""
    samples = Listed([([1.0, 2.0, 3.0], 0)] * 2)
    monkeypatch.setattr(intake, "memory", lambda: 40)
    assert read_part("train", samples, None).inputs.shape == (2, 3)
    monkeypatch.setattr(intake, "memory", lambda: 39)
    with pytest.raises(ValueError, match=r"2 samples need about .* GiB, this machine has"):
        read_part("train", samples, None)
    monkeypatch.undo()
    assert intake.memory() > 2**28
