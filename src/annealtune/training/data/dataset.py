"""A data set in memory, a fixed part of it, and the validation split."""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from annealtune.errors import ConfigError

from .randomness import Purpose, generator


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels of a classification task, all in memory.

    Args:
        name: For messages and reports.
        train_images: ``uint8`` of shape (images, channels, height, width).
        train_labels: ``int64``, one class number per image.
        test_images: As the training images, of the same size.
        test_labels: As the training labels.
        classes: The name of each class.
        mean: Of each channel, in units of ``pixel / scale``.
        std: Standard deviation of each channel, in the same units.
        scale: The largest pixel value.

    Raises:
        TypeError: For tensors of another dtype.
        ValueError: For shapes, labels or statistics that do not fit together.

    Example:
        >>> images, labels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
        >>> task = Dataset("blank", images, labels, images, labels, ("no", "yes"), (0.5,), (0.5,))
        >>> task.channels, task.image_size
        (1, (8, 8))
    """

    name: str
    train_images: Tensor = field(repr=False)
    train_labels: Tensor = field(repr=False)
    test_images: Tensor = field(repr=False)
    test_labels: Tensor = field(repr=False)
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 255.0

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            raise ValueError(
                f"Dataset(classes=...) must be two or more different names, got {self.classes}"
            )
        for part in ("train", "test"):
            self._check_part(part)
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            raise ValueError(
                "Dataset(...): training and test images must have the same shape, got "
                f"{tuple(self.train_images.shape[1:])} and {tuple(self.test_images.shape[1:])}"
            )
        for argument, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != self.channels:
                raise ValueError(
                    f"Dataset({argument}=...) must have one number for each of the "
                    f"{self.channels} channels, got {values}"
                )
        if not all(0 < number < math.inf for number in (*self.std, self.scale)):
            raise ValueError(
                "Dataset(std=..., scale=...) must be positive and finite, got "
                f"{self.std} and {self.scale}"
            )

    def _check_part(self, part: str) -> None:
        images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
        if images.dtype != torch.uint8 or labels.dtype != torch.int64:
            raise TypeError(
                f"Dataset({part}_images=..., {part}_labels=...) must be uint8 and int64, got "
                f"{images.dtype} and {labels.dtype}"
            )
        if images.ndim != 4 or images.numel() == 0:
            raise ValueError(
                f"Dataset({part}_images=...) must have the shape (images, channels, height, "
                f"width), none of them 0, got {tuple(images.shape)}"
            )
        if labels.shape != images.shape[:1]:
            raise ValueError(
                f"Dataset({part}_labels=...) must hold one label for each of the {len(images)} "
                f"images, got the shape {tuple(labels.shape)}"
            )
        lowest, highest = (int(label) for label in labels.aminmax())
        if lowest < 0 or highest >= len(self.classes):
            raise ValueError(
                f"Dataset({part}_labels=...) must be in 0..{len(self.classes) - 1}, got "
                f"{lowest if lowest < 0 else highest}"
            )

    @property
    def channels(self) -> int:
        """Planes of an image: 1 for grey, 3 for colour."""
        return self.train_images.shape[1]

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of an image."""
        height, width = self.train_images.shape[2:]
        return height, width


def subset(dataset: Dataset, train_size: int, seed: int) -> Dataset:
    """Return the data set with a fixed part of its training images and all test images.

    The part is the beginning of one random permutation, not stratified, so a smaller part of the
    same seed lies within a larger one.

    Raises:
        ConfigError: If there are fewer images than that.
    """
    available = len(dataset.train_labels)
    if not 1 <= train_size <= available:
        raise ConfigError(
            f"train_size = {train_size}: must be in 1..{available}, the training images of "
            f"{dataset.name}"
        )
    order = torch.randperm(available, generator=generator(seed, Purpose.SUBSET))[:train_size]
    return replace(
        dataset,
        train_images=dataset.train_images[order],
        train_labels=dataset.train_labels[order],
    )


def split(
    count: int, fraction: float, seed: int, purpose: Purpose = Purpose.SPLIT
) -> tuple[Tensor, Tensor]:
    """Divide ``count`` training images by one random permutation, not stratified.

    Returns:
        The numbers of the training images and of the fraction set apart, each in rising order.

    Raises:
        ValueError: If the fraction is not in [0, 1), or leaves one of the two sets empty although
            it is not 0.

    Example:
        >>> training, validation = split(10, 0.2, seed=0)
        >>> len(training), len(validation)
        (8, 2)
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"split(fraction=...) must be in [0, 1), got {fraction}")
    held_out = round(count * fraction)
    if count < 1 or held_out == count or (fraction > 0 and held_out == 0):
        raise ValueError(
            f"split(count={count}, fraction={fraction}): {held_out} of {count} images set apart "
            "leave one of the two sets empty"
        )
    order = torch.randperm(count, generator=generator(seed, purpose))
    return order[held_out:].sort().values, order[:held_out].sort().values
