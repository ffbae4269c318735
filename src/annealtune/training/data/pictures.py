"""Pictures in files, as arrays of pixels."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from annealtune.errors import DataError

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
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
    with _open(path) as picture:
        try:
            pixels = picture.convert(mode)
        except (OSError, SyntaxError, ValueError) as error:
            raise DataError(f"{path} cannot be read as a picture: {error}") from error
    if resize:
        pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
    elif (pixels.height, pixels.width) != size:
        raise DataError(f"{path} is {pixels.height}x{pixels.width}, but {rule}")
    return np.asarray(pixels, dtype=np.uint8).reshape(height, width, -1).transpose(2, 0, 1)


def _open(path: Path) -> Image.Image:
    try:
        return Image.open(path)
    except (OSError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be read as a picture: {error}") from error
