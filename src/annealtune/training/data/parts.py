"""Which samples a run trains on, is judged by, validated and tested on."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from annealtune.errors import ConfigError
from annealtune.training.config import RunConfig
from annealtune.training.config.blocks import TunedOptions

from .augmentation import Augmentation
from .batches import Batches
from .dataset import Dataset, split, subset
from .randomness import Purpose


class Parts(NamedTuple):
    """The minibatches of each part; no sample is in two of them."""

    training: Batches
    validation: Batches
    test: Batches
    held_out: Batches | None
    """For the accept test alone, where it asks for it."""


def divide(
    config: RunConfig,
    dataset: Dataset,
    *,
    device: torch.device,
    channels_last: bool,
    augment: Augmentation | None,
) -> Parts:
    """Cut a data set into its parts, as the config says.

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
        share = config.validation_fraction
        training, validation = _cut(
            training, share, split_seed, Purpose.SPLIT, "validation_fraction"
        )
    held_out = None
    options = config.options
    if isinstance(options, TunedOptions) and options.accept_batch == "held-out":
        training, held_out = _cut(
            training,
            options.held_out_fraction,
            split_seed,
            Purpose.HELD_OUT_SPLIT,
            f"{config.method}.held_out_fraction",
        )

    def batches(part: tuple[Tensor, Tensor], **options: Any) -> Batches:
        return Batches(
            *part,
            **{"batch_size": config.batch_size, **options},
            seed=seed,
            mean=dataset.mean,
            std=dataset.std,
            scale=dataset.scale,
            device=device,
            channels_last=channels_last,
        )

    return Parts(
        batches(training, reshuffle=config.reshuffle, augment=augment),
        batches(validation, shuffle=False),
        batches(test, shuffle=False),
        None
        if held_out is None
        else batches(
            held_out,
            # Whole minibatches only: values of a smaller one would be noisier than the others.
            batch_size=min(config.batch_size, len(held_out[1])),
            drop_last=True,
            order=Purpose.HELD_OUT_ORDER,
        ),
    )


def _cut(
    part: tuple[Tensor, Tensor], share: float, seed: int, purpose: Purpose, key: str
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Divide a part in two, the second one as large as a share of it."""
    inputs, targets = part
    try:
        kept, apart = split(len(targets), share, seed, purpose)
    except ValueError as error:
        raise ConfigError(f"{key} = {share}: {error}") from None
    return (inputs[kept], targets[kept]), (inputs[apart], targets[apart])
