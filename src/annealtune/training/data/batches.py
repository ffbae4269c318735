"""Minibatches by indexing, in an order that survives a restart, and which samples they are of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from annealtune.training.config import RunConfig

from .dataset import Dataset, Purpose, generator, split, subset


class Samples(NamedTuple):
    """Some samples as a model is given them, and what it must make of them.

    Attributes:
        inputs: normalised images, numbers or tokens, of shape (samples, ...).
        targets: a class, numbers or tokens for each sample.
    """

    inputs: Tensor
    targets: Tensor


class Batches:
    """The minibatches of one epoch after the other.

    Iterating yields what is left of the current epoch and then moves on to the next, so a loop
    that was left in the middle continues there. The order depends on the seed and the epoch alone:
    ``state_dict`` is the epoch and the position.

    Args:
        inputs: Of shape (samples, ...), moved to ``device`` whole: ``uint8`` images, ``float32`` or
            ``float64`` numbers, or ``int64`` tokens.
        targets: One for each sample.
        batch_size: Samples in a minibatch; the last one of an epoch may be smaller.
        seed: Of order and `sample`.
        mean: Of each channel or feature, in units of ``input / scale``; without it the inputs are
            yielded as they are.
        std: Standard deviation of each, in the same units.
        scale: The largest pixel value; 1 for numbers.
        shuffle: A random order; otherwise the samples come as they are.
        reshuffle: A new order each epoch; otherwise the samples are divided into minibatches once
            (line 1 of Algorithm 2).
        device: Where the minibatches live.
        channels_last: Yield images in channels-last memory order.

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
        device: torch.device | str = "cpu",
        channels_last: bool = False,
    ) -> None:
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.reshuffle = reshuffle
        self.epoch = 0
        self.position = 0
        self._scaling = Scaling(mean, std, scale, ndim=inputs.ndim).to(device)
        if inputs.dtype == torch.float64:  # normalised now, then rounded
            inputs, self._scaling = self._scaling(inputs), Scaling((), (), 1.0, ndim=inputs.ndim)
        self._inputs = inputs.to(device)
        self._targets = targets.to(device)
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format

    @property
    def samples(self) -> int:
        """How many there are."""
        return len(self._targets)

    def __len__(self) -> int:
        """Return the number of minibatches in an epoch."""
        return math.ceil(self.samples / self.batch_size)

    def __iter__(self) -> Iterator[Samples]:
        """Yield what is left of the current epoch; its end is the start of the next one."""
        order = self._order(self.epoch)
        while self.position < len(self):
            start = self.position * self.batch_size
            chosen = slice(start, start + self.batch_size)
            # Counted before it is handed out: a state saved while the caller works on this
            # minibatch continues with the next one.
            self.position += 1
            yield self._minibatch(chosen if order is None else order[chosen])
        self.epoch += 1
        self.position = 0

    def sample(self, count: int, *, epoch: int) -> Iterator[Samples]:
        """Yield ``count`` random minibatches, or all samples once if there are fewer.

        They are drawn without replacement from a stream of their own: the minibatches of the
        epochs do not change. The same epoch gives the same sample.
        """
        source = generator(self.seed, Purpose.SAMPLE, epoch)
        order = torch.randperm(len(self._targets), generator=source).to(self._targets.device)
        for chosen in order[: count * self.batch_size].split(self.batch_size):
            yield self._minibatch(chosen)

    def state_dict(self) -> dict[str, int]:
        """Return where the iteration stands, as plain integers."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue where a state was taken, from the next minibatch on."""
        self.epoch, self.position = state["epoch"], state["position"]

    def _order(self, epoch: int) -> Tensor | None:
        if not self.shuffle:
            return None
        source = generator(self.seed, Purpose.ORDER, epoch if self.reshuffle else 0)
        return torch.randperm(len(self._targets), generator=source).to(self._targets.device)

    def _minibatch(self, chosen: Tensor | slice) -> Samples:
        if isinstance(chosen, slice):
            # A copy, as of pixels below: a model may change its inputs in place.
            inputs, targets = self._inputs[chosen], self._targets[chosen]
            inputs = inputs if inputs.dtype == torch.uint8 else inputs.clone()
        else:  # index_select copies whole samples: some 20 times faster than inputs[chosen]
            inputs = self._inputs.index_select(0, chosen)
            targets = self._targets.index_select(0, chosen)
        if inputs.dtype != torch.int64:
            inputs = inputs.to(torch.float32, memory_format=self._memory_format)
        return Samples(self._scaling.in_place(inputs), targets)


class Scaling(nn.Module):
    """Computes (input / scale - mean) / std of each channel, or each feature of a table.

    Args:
        mean: Of each, in units of ``input / scale``; empty leaves the inputs as they are.
        std: Standard deviation of each, in the same units.
        scale: The largest pixel value; 1 for numbers.
        ndim: Axes of the inputs, that of the samples included; channels are the second.

    Example:
        >>> Scaling((0.5,), (0.25,), 8.0, ndim=2)(torch.tensor([[8], [0]], dtype=torch.uint8))
        tensor([[ 2.],
                [-2.]])
    """

    factor: Tensor | None
    offset: Tensor | None

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], scale: float, *, ndim: int
    ) -> None:
        super().__init__()
        self.register_buffer("factor", None)
        self.register_buffer("offset", None)
        if mean:
            self._scale = scale
            self._center, self._spread = (
                torch.tensor(v, dtype=torch.float64).view(1, -1, *[1] * (ndim - 2))
                for v in (mean, std)
            )
            # One multiplication and one addition.
            self.factor = (1 / (scale * self._spread)).float()
            self.offset = (-self._center / self._spread).float()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return new inputs as ``float32``; tokens, and numbers without a mean, as they are.

        ``float64`` inputs are rounded after the normalisation, others before it.
        """
        if self.factor is None or self.offset is None:
            return inputs
        if inputs.dtype == torch.float64:
            exact = (inputs.cpu() / self._scale - self._center) / self._spread
            return exact.float().to(inputs.device)
        return torch.addcmul(self.offset, inputs.to(torch.float32), self.factor)

    def in_place(self, inputs: Tensor) -> Tensor:
        """Do the same to ``float32`` inputs that nobody else needs."""
        if self.factor is None or self.offset is None:
            return inputs
        return torch.addcmul(self.offset, inputs, self.factor, out=inputs)


def divide(
    config: RunConfig,
    dataset: Dataset,
    *,
    device: torch.device,
    channels_last: bool,
) -> tuple[Batches, Batches, Batches]:
    """Cut a data set into its parts, as the config says: training, validation and test.

    Raises:
        ConfigError: if a part would be empty.
    """
    seed = config.seeds["data_seed"]
    split_seed = seed if config.split_seed is None else config.split_seed
    if config.train_size is not None:
        dataset = subset(dataset, config.train_size, split_seed)
    training = dataset.train_inputs, dataset.train_targets
    validation = test = dataset.test_inputs, dataset.test_targets
    if config.validate_on != "test":
        kept, apart = split(len(training[1]), config.validation_fraction, split_seed)
        training, validation = (
            (training[0][chosen], training[1][chosen]) for chosen in (kept, apart)
        )

    def batches(part: tuple[Tensor, Tensor], **options: Any) -> Batches:
        return Batches(
            *part,
            **options,
            batch_size=config.batch_size,
            seed=seed,
            mean=dataset.mean,
            std=dataset.std,
            scale=dataset.scale,
            device=device,
            channels_last=channels_last,
        )

    return (
        batches(training, reshuffle=config.reshuffle),
        batches(validation, shuffle=False),
        batches(test, shuffle=False),
    )
