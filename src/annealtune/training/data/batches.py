"""Minibatches by indexing, in an order that survives a restart."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .augmentation import Augmentation
from .randomness import Purpose, generator
from .scaling import Scaling


class Samples(NamedTuple):
    """Some samples as a model is given them, and what it must make of them.

    Attributes:
        inputs: normalised images, numbers or tokens, of shape (samples, ...).
        targets: a class, numbers or tokens for each sample.
    """

    inputs: Tensor
    targets: Tensor

    @property
    def labels(self) -> Tensor:
        """The targets, as one calls them where they are classes."""
        return self.targets


class Batches:
    """The minibatches of one epoch after the other.

    Iterating yields what is left of the current epoch and then moves on to the next, so a loop
    that was left in the middle continues there. The order and the augmentation depend on the seed,
    the epoch and the position alone: ``state_dict`` is those three numbers and a few for checking.

    Args:
        inputs: Of shape (samples, ...), moved to ``device`` whole: ``uint8`` images, ``float32``
            numbers or ``int64`` tokens.
        targets: One for each sample.
        batch_size: Samples in a minibatch; the last one of an epoch may be smaller.
        seed: Of order, augmentation and `sample`.
        mean: Of each channel or feature, in units of ``input / scale``; without it the inputs are
            yielded as they are.
        std: Standard deviation of each, in the same units.
        scale: The largest pixel value; 1 for numbers.
        shuffle: A random order; otherwise the samples come as they are.
        reshuffle: A new order each epoch; otherwise the samples are divided into minibatches once
            (line 1 of Algorithm 2).
        drop_last: Leave the smaller last minibatch out.
        order: Which stream of random numbers the order comes from.
        augment: Changes the images at random before they are normalised.
        device: Where the minibatches live.
        channels_last: Yield images in channels-last memory order.

    Raises:
        ValueError: For inputs and targets that do not fit, or a batch size that gives no minibatch.

    Example:
        >>> images, labels = torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.arange(10)
        >>> batches = Batches(images, labels, batch_size=4, seed=0, mean=(0.5,), std=(0.5,))
        >>> [len(targets) for inputs, targets in batches], batches.epoch
        ([4, 4, 2], 1)
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        batch_size: int,
        seed: int,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
        scale: float = 255.0,
        shuffle: bool = True,
        reshuffle: bool = True,
        drop_last: bool = False,
        order: Purpose = Purpose.ORDER,
        augment: Augmentation | None = None,
        device: torch.device | str = "cpu",
        channels_last: bool = False,
    ) -> None:
        is_known = inputs.dtype in (torch.uint8, torch.float32, torch.int64) and inputs.ndim > 1
        if not is_known or len(inputs) != len(targets):
            raise ValueError(
                "Batches(inputs, targets) must be uint8, float32 or int64 inputs of shape "
                f"(samples, ...) and as many targets, got {inputs.dtype} of {tuple(inputs.shape)} "
                f"and {len(targets)} targets"
            )
        if batch_size < 1 or len(inputs) < (batch_size if drop_last else 1):
            raise ValueError(
                f"Batches(batch_size=...): {len(inputs)} samples give no minibatch of {batch_size}"
            )
        needed = bool(mean) or inputs.dtype == torch.uint8
        if not len(mean) == len(std) == (inputs.shape[1] if needed else 0):
            raise ValueError(
                f"Batches(mean=..., std=...) must have one number for each of the "
                f"{inputs.shape[1]} channels, got {mean} and {std}"
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
        self._inputs = inputs.to(device)
        self._targets = targets.to(device)
        self._scaling = Scaling(mean, std, scale, ndim=inputs.ndim).to(device)
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format

    def __len__(self) -> int:
        """Return the number of minibatches in an epoch."""
        whole, rest = divmod(len(self._targets), self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    @property
    def left(self) -> int:
        """The number of minibatches that are left of the current epoch."""
        return len(self) - self.position

    def __iter__(self) -> Iterator[Samples]:
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

    def sample(self, count: int, *, epoch: int) -> Iterator[Samples]:
        """Yield ``count`` random minibatches, or all samples once if there are fewer.

        They are drawn without replacement, without augmentation, from a stream of their own: the
        minibatches of the epochs do not change. The same epoch gives the same sample.

        Raises:
            ValueError: If the count is not positive.
        """
        if count < 1:
            raise ValueError(f"Batches.sample(count=...) must be positive, got {count}")
        source = generator(self.seed, Purpose.SAMPLE, epoch)
        order = torch.randperm(len(self._targets), generator=source).to(self._targets.device)
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
            "images": len(self._targets),
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
        return torch.randperm(len(self._targets), generator=source).to(self._targets.device)

    def _minibatch(self, chosen: Tensor | slice, source: torch.Generator | None) -> Samples:
        if isinstance(chosen, slice):
            # A copy, as of pixels below: a model may change its inputs in place.
            inputs, targets = self._inputs[chosen], self._targets[chosen]
            inputs = inputs if inputs.dtype == torch.uint8 else inputs.clone()
        else:  # index_select copies whole samples: some 20 times faster than inputs[chosen]
            inputs = self._inputs.index_select(0, chosen)
            targets = self._targets.index_select(0, chosen)
        if self.augment is not None and source is not None:
            inputs = self.augment(inputs, source)
        if inputs.dtype != torch.int64:
            inputs = inputs.to(torch.float32, memory_format=self._memory_format)
        return Samples(self._scaling.in_place(inputs), targets)
