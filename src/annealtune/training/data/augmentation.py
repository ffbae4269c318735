"""Random changes of a minibatch's images, for all images at once."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn import functional

from annealtune.errors import ConfigError

Augmentation = Callable[[Tensor, Generator], Tensor]
"""Takes ``uint8`` images and a CPU generator, returns new images of the same shape and dtype."""

MARGIN = 4


def crop_flip(images: Tensor, generator: Generator, strength: float = 1.0) -> Tensor:
    """Move each image by up to 4 pixels each way, black coming in, and mirror every second one.

    The same as cutting a random window out of the image padded by 4 and flipping it left to right
    with probability 1/2.

    Args:
        images: ``uint8`` of shape (images, channels, height, width).
        generator: A CPU generator; four draws per image, whatever the device and the strength.
        strength: From 0 to 1: move by up to ``round(4 * strength)`` pixels, mirror with probability
            ``strength / 2``.
    """
    count, _, height, width = images.shape
    device = images.device
    reach = round(MARGIN * strength)
    shifts = torch.randint(2 * reach + 1, (2, count), generator=generator)
    corners = (shifts + MARGIN - reach).to(device)
    halves = torch.randint(2, (count,), generator=generator).bool()
    # A draw of its own: at full strength the bits are those of a fair coin alone.
    mirrored = (halves & (torch.rand(count, generator=generator) < strength)).to(device)
    padded = functional.pad(images, (MARGIN,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    moved = windows[torch.arange(count, device=device), :, corners[0], corners[1]]
    return torch.where(mirrored[:, None, None, None], moved.flip(3), moved)


class CropFlip:
    """`crop_flip` at a strength that may change between two minibatches.

    Example:
        >>> images = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
        >>> torch.equal(CropFlip(0.0)(images, torch.Generator()), images)
        True
    """

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Return new images, moved and mirrored."""
        return crop_flip(images, generator, self.strength)


AUGMENTATIONS = ("none", "crop-flip")


def by_name(name: str) -> CropFlip | None:
    """Return a new augmentation by its name in the config; ``none`` is ``None``.

    Raises:
        ConfigError: For an unknown name.
    """
    if name not in AUGMENTATIONS:
        raise ConfigError(f"augment = {name!r}: must be one of {', '.join(AUGMENTATIONS)}")
    return CropFlip() if name == "crop-flip" else None
