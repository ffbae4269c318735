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

from .dataset import Dataset, channel_statistics, from_files

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
_FORMATS = ("BMP", "JPEG", "PNG", "WEBP")
GREY = ("1", "L")
COLOUR = ("LA", "P", "RGB", "RGBA")


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
    modes = {mode_of(path) for path in (*train.paths, *test.paths)}
    mode = "L" if modes <= set(GREY) else "RGB"
    size = image_size or size_of(train.paths[0])
    rule = (
        f"the first picture is {size[0]}x{size[1]}; give one size to resize all of them to with "
        "the key image_size"
    )
    resize = image_size is not None
    train_images, test_images = (
        np.stack([read_picture(path, mode, size, rule, resize=resize) for path in part.paths])
        for part in (train, test)
    )
    mean, std = channel_statistics(train_images)
    return from_files(
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
        pictures = sorted(p for p in (folder / name).iterdir() if p.suffix.lower() in SUFFIXES)
        if not pictures:
            raise DataError(
                f"data = 'image-folder': {folder / name} holds no picture ({', '.join(SUFFIXES)})"
            )
        part.paths.extend(pictures)
        part.labels.extend([label] * len(pictures))
    return part


def mode_of(path: Path) -> str:
    """Return the pixel type of a picture, one of `GREY` or `COLOUR`.

    Raises:
        DataError: If it cannot be read, or has more than 8 bits a channel.
    """
    with _open(path) as picture:
        if picture.mode not in GREY + COLOUR:
            raise DataError(
                f"{path} has the pixel type {picture.mode}; must be one of "
                f"{', '.join(GREY + COLOUR)}, 8 bits a channel"
            )
        return picture.mode


def size_of(path: Path) -> tuple[int, int]:
    """Return height and width of a picture."""
    with _open(path) as picture:
        return picture.height, picture.width


def read_picture(
    path: Path, mode: str, size: tuple[int, int], rule: str, *, resize: bool
) -> NDArray[np.uint8]:
    """Return a picture as (channels, height, width).

    Args:
        path: Of the file.
        mode: ``"L"`` or ``"RGB"``, to which it is converted.
        size: Height and width.
        rule: For the message about another size: which one it must be, and what to do.
        resize: Resize it instead.

    Raises:
        DataError: If it cannot be read, or has another size.
    """
    height, width = size
    with _open(path) as picture, _explained(path):
        pixels = picture.convert(mode)
        if resize:
            pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
    if (pixels.height, pixels.width) != size:
        raise DataError(f"{path} is {pixels.height}x{pixels.width}, but {rule}")
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
