"""Crop and flip, against a plain loop."""

import pytest
import torch
from torch.nn import functional

from annealtune.errors import ConfigError
from annealtune.training.data.augmentation import CropFlip, by_name, crop_flip


def reference(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    corners = torch.randint(9, (2, len(images)), generator=generator)
    mirrored = torch.randint(2, (len(images),), generator=generator)
    result = []
    for image, top, left, mirror in zip(images, *corners, mirrored, strict=True):
        window = functional.pad(image, (4, 4, 4, 4))[:, top:, left:]
        window = window[:, : image.shape[1], : image.shape[2]]
        result.append(window.flip(2) if mirror else window)
    return torch.stack(result)


@pytest.mark.parametrize("shape", [(40, 3, 32, 32), (40, 1, 28, 20), (1, 1, 8, 8)])
def test_all_at_once_equals_one_after_the_other(shape) -> None:
    source = torch.Generator().manual_seed(0)
    images = torch.randint(256, shape, dtype=torch.uint8, generator=source)
    fast = crop_flip(images, torch.Generator().manual_seed(1))
    assert torch.equal(fast, reference(images, torch.Generator().manual_seed(1)))
    assert fast.dtype == torch.uint8


def test_every_shift_and_both_directions_occur() -> None:
    images = torch.zeros(5000, 1, 9, 9, dtype=torch.uint8)
    images[:, :, 4, 3:5] = torch.tensor([1, 2], dtype=torch.uint8)
    moved = crop_flip(images, torch.Generator().manual_seed(0))
    places = {tuple(place) for place in moved[:, 0].eq(2).nonzero()[:, 1:].tolist()}
    assert places == {(row, column) for row in range(9) for column in range(9)}
    one, two = (moved[:, 0].eq(k).flatten(1).float().argmax(1) for k in (1, 2))
    inside = (one % 9 > 0) & (one % 9 < 8) & (two % 9 > 0) & (two % 9 < 8)
    mirrored = (two < one)[inside].float().mean()
    assert 0.45 < mirrored < 0.55


def dots(count: int) -> torch.Tensor:
    """Images of 21 x 21 with two different dots beside the middle, so that a mirror shows."""
    images = torch.zeros(count, 1, 21, 21, dtype=torch.uint8)
    images[:, :, 10, 10:12] = torch.tensor([1, 2], dtype=torch.uint8)
    return images


@pytest.mark.parametrize(
    ("strength", "reach"), [(0.0, 0), (0.1, 0), (0.25, 1), (0.5, 2), (0.8, 3), (1.0, 4)]
)
def test_a_weaker_one_moves_less_and_mirrors_less_often(strength, reach) -> None:
    moved = CropFlip(strength)(dots(6000), torch.Generator().manual_seed(0))[:, 0]
    rows, columns = (moved.eq(1).nonzero()[:, axis] for axis in (1, 2))
    seconds = moved.eq(2).nonzero()[:, 2]
    mirrored = seconds < columns
    assert set(rows.tolist()) == set(range(10 - reach, 11 + reach))
    straight = columns[~mirrored]
    assert set(straight.tolist()) == set(range(10 - reach, 11 + reach))
    assert abs(mirrored.float().mean() - strength / 2) < 0.03


def test_full_strength_is_the_plain_function() -> None:
    fast = CropFlip(1.0)(dots(50), torch.Generator().manual_seed(1))
    assert torch.equal(fast, crop_flip(dots(50), torch.Generator().manual_seed(1)))


def test_the_number_of_draws_does_not_depend_on_the_strength() -> None:
    left = []
    for strength in (0.0, 0.1, 0.3, 0.5, 1.0):
        source = torch.Generator().manual_seed(7)
        CropFlip(strength)(dots(33), source)
        left.append(torch.rand(4, generator=source))
    assert all(torch.equal(each, left[0]) for each in left)


def test_names() -> None:
    assert by_name("none") is None
    made = by_name("crop-flip")
    assert isinstance(made, CropFlip)
    assert made.strength == 1.0
    assert made is not by_name("crop-flip"), "each run has its own strength"
    with pytest.raises(ConfigError, match="augment = 'flip': must be one of none, crop-flip"):
        by_name("flip")
