"""Pictures in files, as arrays of pixels."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from annealtune.errors import DataError
from annealtune.training.factories import in_one_line

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
_FORMATS = ("BMP", "JPEG", "PNG", "WEBP")
GREY = ("1", "L")
COLOUR = ("LA", "P", "RGB", "RGBA")


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
    """Open a picture by one of our decoders; others are many, and one of them starts a program."""
    with _explained(path):
        if path.exists() and not path.is_file():  # a pipe may never end
            raise DataError(f"{path} is not a file")
        return Image.open(path, formats=_FORMATS)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn whatever a decoder makes of a damaged or hostile file into an error of ours.

    One that unpacks to more pixels than Pillow takes is among them.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path} cannot be read as a picture: {in_one_line(error)}") from error
