"""Minibatches by indexing, in an order that survives a restart."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .augmentation import Augmentation
from .randomness import Purpose, generator


class LabeledImages(NamedTuple):
    """Some images and what they show.

    Attributes:
        inputs: normalised images, of shape (images, channels, height, width).
        labels: one class number per image.
    """

    inputs: Tensor
    labels: Tensor


class Batches:
    """The minibatches of one epoch after the other.

    Iterating yields what is left of the current epoch and then moves on to the next, so a loop
    that was left in the middle continues there. The order and the augmentation depend on the seed,
    the epoch and the position alone: ``state_dict`` is those three numbers and a few for checking.

    Args:
        images: ``uint8`` of shape (images, channels, height, width), moved to ``device`` whole.
        labels: One class number per image.
        batch_size: Images in a minibatch; the last one of an epoch may be smaller.
        seed: Of order, augmentation and `sample`.
        mean: Of each channel, in units of ``pixel / scale``.
        std: Standard deviation of each channel, in the same units.
        scale: The largest pixel value.
        shuffle: A random order; otherwise the images come as they are.
        reshuffle: A new order each epoch; otherwise the images are divided into minibatches once
            (line 1 of Algorithm 2).
        drop_last: Leave the smaller last minibatch out.
        order: Which stream of random numbers the order comes from.
        augment: Changes the images at random before they are normalised.
        device: Where the minibatches live.
        channels_last: Yield inputs in channels-last memory order.

    Raises:
        ValueError: For images and labels that do not fit, or a batch size that gives no minibatch.

    Example:
        >>> images, labels = torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.arange(10)
        >>> batches = Batches(images, labels, batch_size=4, seed=0, mean=(0.5,), std=(0.5,))
        >>> [len(targets) for inputs, targets in batches], batches.epoch
        ([4, 4, 2], 1)
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        batch_size: int,
        seed: int,
        mean: Sequence[float],
        std: Sequence[float],
        scale: float = 255.0,
        shuffle: bool = True,
        reshuffle: bool = True,
        drop_last: bool = False,
        order: Purpose = Purpose.ORDER,
        augment: Augmentation | None = None,
        device: torch.device | str = "cpu",
        channels_last: bool = False,
    ) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4 or len(images) != len(labels):
            raise ValueError(
                "Batches(images, labels) must be uint8 images of shape (images, channels, height, "
                f"width) and as many labels, got {images.dtype} of {tuple(images.shape)} and "
                f"{len(labels)} labels"
            )
        if batch_size < 1 or len(images) < (batch_size if drop_last else 1):
            raise ValueError(
                f"Batches(batch_size=...): {len(images)} images give no minibatch of {batch_size}"
            )
        if not len(mean) == len(std) == images.shape[1]:
            raise ValueError(
                f"Batches(mean=..., std=...) must have one number for each of the "
                f"{images.shape[1]} channels, got {mean} and {std}"
            )
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.reshuffle = reshuffle
        self.drop_last = drop_last
        self.order = order
        self.augment = augment
        self.epoch = 0
        self.position = 0
        self._images = images.to(device)
        self._labels = labels.to(device)
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format
        # (pixel / scale - mean) / std as one multiplication and one addition.
        center, spread = (
            torch.tensor(v, dtype=torch.float64, device=device).view(1, -1, 1, 1)
            for v in (mean, std)
        )
        self._factor = (1 / (scale * spread)).float()
        self._offset = (-center / spread).float()

    def __len__(self) -> int:
        """Return the number of minibatches in an epoch."""
        whole, rest = divmod(len(self._labels), self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    @property
    def left(self) -> int:
        """The number of minibatches that are left of the current epoch."""
        return len(self) - self.position

    def __iter__(self) -> Iterator[LabeledImages]:
        """Yield what is left of the current epoch; its end is the start of the next one."""
        order = self._order(self.epoch)
        while self.position < len(self):
            start = self.position * self.batch_size
            chosen = slice(start, start + self.batch_size)
            source = None
            if self.augment is not None:
                source = generator(self.seed, Purpose.AUGMENTATION, self.epoch, self.position)
            # Counted before it is handed out: a state saved while the caller works on this
            # minibatch continues with the next one.
            self.position += 1
            yield self._minibatch(chosen if order is None else order[chosen], source)
        self.epoch += 1
        self.position = 0

    def sample(self, count: int, *, epoch: int) -> Iterator[LabeledImages]:
        """Yield ``count`` random minibatches, or all images once if there are fewer.

        They are drawn without replacement, without augmentation, from a stream of their own: the
        minibatches of the epochs do not change. The same epoch gives the same sample.

        Raises:
            ValueError: If the count is not positive.
        """
        if count < 1:
            raise ValueError(f"Batches.sample(count=...) must be positive, got {count}")
        source = generator(self.seed, Purpose.SAMPLE, epoch)
        order = torch.randperm(len(self._labels), generator=source).to(self._labels.device)
        for chosen in order[: count * self.batch_size].split(self.batch_size):
            yield self._minibatch(chosen, None)

    def state_dict(self) -> dict[str, int]:
        """Return where the iteration stands, as plain integers."""
        return {"epoch": self.epoch, "position": self.position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue where a state was taken, from the next minibatch on.

        Raises:
            ValueError: If the state is of other minibatches than these.
        """
        expected = self._identity()
        found = {key: state.get(key) for key in expected}
        if found != expected:
            raise ValueError(f"Batches.load_state_dict(...): must be of {expected}, got {found}")
        epoch, position = int(state["epoch"]), int(state["position"])
        if epoch < 0 or not 0 <= position <= len(self):
            raise ValueError(
                f"Batches.load_state_dict(...): position must be in 0..{len(self)}, got "
                f"{position} of epoch {epoch}"
            )
        self.epoch, self.position = epoch, position

    def _identity(self) -> dict[str, int]:
        return {
            "seed": self.seed,
            "images": len(self._labels),
            "batch_size": self.batch_size,
            "shuffle": int(self.shuffle),
            "reshuffle": int(self.reshuffle),
            "drop_last": int(self.drop_last),
            "augment": int(self.augment is not None),
        }

    def _order(self, epoch: int) -> Tensor | None:
        if not self.shuffle:
            return None
        source = generator(self.seed, self.order, epoch if self.reshuffle else 0)
        return torch.randperm(len(self._labels), generator=source).to(self._labels.device)

    def _minibatch(self, chosen: Tensor | slice, source: torch.Generator | None) -> LabeledImages:
        if isinstance(chosen, slice):
            images, labels = self._images[chosen], self._labels[chosen]
        else:  # index_select copies whole images: some 20 times faster than images[chosen]
            images = self._images.index_select(0, chosen)
            labels = self._labels.index_select(0, chosen)
        if self.augment is not None and source is not None:
            images = self.augment(images, source)
        inputs = images.to(torch.float32, memory_format=self._memory_format)
        return LabeledImages(torch.addcmul(self._offset, inputs, self._factor, out=inputs), labels)
