"""A folder of pictures: ``DIR/train/CLASS/*.png`` and ``DIR/test/CLASS/*.png``."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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


class _Part(NamedTuple):
    paths: list[Path]
    labels: list[int]


def load(data_dir: Path, *, image_size: tuple[int, int] | None = None) -> Dataset:
    """Read the pictures below a folder into memory.

    They are grey if all are, else colour; mean and deviation are those of the training pictures.
    Every picture is resized to ``image_size``, height and width; without it all must have one size.

    Raises:
        DataError: If the folders are not as above, or a picture cannot be read or has another size.
    """
    train, test, classes = _find(data_dir)
    modes = {_mode(path) for path in (*train.paths, *test.paths)}
    mode = "L" if modes <= set(_GREY) else "RGB"
    size = image_size or _size(train.paths[0])
    train_images, test_images = (
        np.stack([_read(path, mode, size, resize=image_size is not None) for path in part.paths])
        for part in (train, test)
    )
    mean, std = channel_statistics(train_images)
    return Dataset(
        name="image-folder",
        train_inputs=torch.from_numpy(train_images),
        train_targets=torch.tensor(train.labels),
        test_inputs=torch.from_numpy(test_images),
        test_targets=torch.tensor(test.labels),
        classes=classes,
        mean=mean,
        std=std,
    )


def _find(data_dir: Path) -> tuple[_Part, _Part, tuple[str, ...]]:
    train_dir, test_dir = data_dir / "train", data_dir / "test"
    for folder in (train_dir, test_dir):
        if not folder.is_dir():
            raise DataError(f"data = 'image-folder': {folder} is not a folder; see --data-dir")
    classes = _classes(train_dir)
    if len(classes) < 2:
        raise DataError(
            f"data = 'image-folder': {train_dir} must hold one folder for each of two or more "
            f"classes, got {list(classes)}"
        )
    if _classes(test_dir) != classes:
        raise DataError(
            f"data = 'image-folder': {test_dir} must hold the same classes as {train_dir}, "
            f"{list(classes)}, got {list(_classes(test_dir))}"
        )
    return _list(train_dir, classes), _list(test_dir, classes), classes


def _classes(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name[0] != "."))


def _list(folder: Path, classes: tuple[str, ...]) -> _Part:
    part = _Part([], [])
    for label, name in enumerate(classes):
        pictures = sorted(p for p in (folder / name).iterdir() if p.suffix.lower() in _SUFFIXES)
        if not pictures:
            raise DataError(
                f"data = 'image-folder': {folder / name} holds no picture ({', '.join(_SUFFIXES)})"
            )
        part.paths.extend(pictures)
        part.labels.extend([label] * len(pictures))
    return part


def _mode(path: Path) -> str:
    with _open(path) as picture:
        if picture.mode not in _GREY + _COLOUR:
            raise DataError(
                f"{path} has the pixel type {picture.mode}; must be one of "
                f"{', '.join(_GREY + _COLOUR)}, 8 bits a channel"
            )
        return picture.mode


def _size(path: Path) -> tuple[int, int]:
    with _open(path) as picture:
        return picture.height, picture.width


def _read(path: Path, mode: str, size: tuple[int, int], *, resize: bool) -> NDArray[np.uint8]:
    """Return a picture as (channels, height, width)."""
    height, width = size
    with _open(path) as picture, _explained(path):
        pixels = picture.convert(mode)
        if resize:
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
    if (pixels.height, pixels.width) != size:
        raise DataError(
            f"{path} is {pixels.height}x{pixels.width}, but the first picture is {height}x{width}; "
            "give one size to resize all of them to with the key image_size"
        )
    return np.asarray(pixels, dtype=np.uint8).reshape(height, width, -1).transpose(2, 0, 1)


def _open(path: Path) -> Image.Image:
    with _explained(path):
        return Image.open(path, formats=_FORMATS)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn whatever a decoder makes of a damaged file into an error of ours."""
    try:
        yield
    except Exception as error:
        raise DataError(f"{path} cannot be read as a picture: {in_one_line(error)}") from error
