"""Random changes of a minibatch's images, for all images at once."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn import functional

from annealtune.errors import ConfigError

Augmentation = Callable[[Tensor, Generator], Tensor]
"""Takes ``uint8`` images and a CPU generator, returns new images of the same shape and dtype."""

MARGIN = 4


def crop_flip(images: Tensor, generator: Generator) -> Tensor:
    """Move each image by up to 4 pixels each way, black coming in, and mirror every second one.

    The same as cutting a random window out of the image padded by 4 and flipping it left to right
    with probability 1/2.

    Args:
        images: ``uint8`` of shape (images, channels, height, width).
        generator: A CPU generator; three draws per image, whatever the device.

    Returns:
        New images of the same shape.
    """
    count, _, height, width = images.shape
    device = images.device
    corners = torch.randint(2 * MARGIN + 1, (2, count), generator=generator).to(device)
    mirrored = torch.randint(2, (count,), generator=generator).to(device).bool()
    padded = functional.pad(images, (MARGIN,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    moved = windows[torch.arange(count, device=device), :, corners[0], corners[1]]
    return torch.where(mirrored[:, None, None, None], moved.flip(3), moved)


AUGMENTATIONS: dict[str, Augmentation | None] = {"none": None, "crop-flip": crop_flip}


def by_name(name: str) -> Augmentation | None:
    """Return an augmentation by its name in the config; ``none`` is ``None``.

    Raises:
        ConfigError: For an unknown name.
    """
    if name not in AUGMENTATIONS:
        raise ConfigError(f"augment = {name!r}: must be one of {', '.join(AUGMENTATIONS)}")
    return AUGMENTATIONS[name]
