"""A folder of pictures: ``DIR/train/CLASS/*.png`` and ``DIR/test/CLASS/*.png``."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from annealtune.errors import DataError
from annealtune.training.factories import in_one_line

from .dataset import Dataset, channel_statistics

_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
_FORMATS = ("BMP", "JPEG", "PNG", "WEBP")
_GREY = ("1", "L")
_COLOUR = ("LA", "P", "RGB", "RGBA")


def load(data_dir: Path, *, image_size: tuple[int, int] | None = None) -> Dataset:
    """Read the pictures below a folder into memory.

    They are grey if all are, else colour; mean and deviation are those of the training pictures.
    Every picture is resized to ``image_size``, height and width; without it all must have one size.

    Raises:
        DataError: If the folders are not as above, or a picture cannot be read or has another size.
    """
    classes, others = _classes(data_dir / "train"), _classes(data_dir / "test")
    if len(classes) < 2 or classes != others:
        raise DataError(
            f"data = 'image-folder': {data_dir}/train and {data_dir}/test must hold a folder for "
            f"each of the same two or more classes, got {list(classes)} and {list(others)}; see "
            "--data-dir"
        )
    train, test = (_find(data_dir / part, classes) for part in ("train", "test"))
    pictures = {path: _open(path) for path in (*train, *test)}
    mode = "L" if all(picture.mode in _GREY for picture in pictures.values()) else "RGB"
    first = pictures[next(iter(train))]
    size = image_size or (first.height, first.width)
    if image_size is not None:
        wanted = image_size[::-1]
        for path, picture in pictures.items():
            pictures[path] = picture.convert(mode).resize(wanted, Image.Resampling.BILINEAR)
    train_images, test_images = (
        np.stack([_pixels(path, pictures[path].convert(mode), size) for path in part])
        for part in (train, test)
    )
    mean, std = channel_statistics(train_images)
    return Dataset(
        name="image-folder",
        train_inputs=torch.from_numpy(train_images),
        train_targets=torch.tensor(list(train.values())),
        test_inputs=torch.from_numpy(test_images),
        test_targets=torch.tensor(list(test.values())),
        classes=classes,
        mean=mean,
        std=std,
    )


def _classes(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        return ()
    return tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name[0] != "."))


def _find(folder: Path, classes: tuple[str, ...]) -> dict[Path, int]:
    """Return the pictures of a part, each with its label."""
    found: dict[Path, int] = {}
    for label, name in enumerate(classes):
        pictures = sorted(p for p in (folder / name).iterdir() if p.suffix.lower() in _SUFFIXES)
        if not pictures:
            raise DataError(
                f"data = 'image-folder': {folder / name} holds no picture ({', '.join(_SUFFIXES)})"
            )
        found |= dict.fromkeys(pictures, label)
    return found


def _open(path: Path) -> Image.Image:
    try:
        with Image.open(path, formats=_FORMATS) as picture:
            picture.load()
    except Exception as error:  # whatever a decoder makes of a damaged file
        raise DataError(f"{path} cannot be read as a picture: {in_one_line(error)}") from error
    if picture.mode not in _GREY + _COLOUR:
        raise DataError(
            f"{path} has the pixel type {picture.mode}; must be one of "
            f"{', '.join(_GREY + _COLOUR)}, 8 bits a channel"
        )
    return picture


def _pixels(path: Path, picture: Image.Image, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return a picture as (channels, height, width)."""
    height, width = size
    if (picture.height, picture.width) != size:
        raise DataError(
            f"{path} is {picture.height}x{picture.width}, but the first picture is "
            f"{height}x{width}; give one size to resize all of them to with the key image_size"
        )
    return np.asarray(picture, dtype=np.uint8).reshape(height, width, -1).transpose(2, 0, 1)
