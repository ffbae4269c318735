"""Which images a run trains on, is judged by, validated and tested on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from annealtune.errors import ConfigError
from annealtune.training import data
from annealtune.training.annealed_options import AcceptanceOptions
from annealtune.training.config import RunConfig
from annealtune.training.data.augmentation import Augmentation
from annealtune.training.data.randomness import Purpose


class Division(NamedTuple):
    """The minibatches of each part; no image is in two of them."""

    training: data.Batches
    validation: data.Batches
    test: data.Batches
    held_out: data.Batches | None
    """For the accept test alone, where it asks for it."""


def divide(
    config: RunConfig,
    dataset: data.Dataset,
    *,
    device: torch.device,
    channels_last: bool,
    augment: Augmentation | None,
) -> Division:
    """Cut a data set into its parts.

    Args:
        config: says how many images go where.
        dataset: as loaded.
        device: where the minibatches live.
        channels_last: their memory order.
        augment: changes the training images.

    Raises:
        ConfigError: if a part would be empty.
    """
    seed = config.seeds["data_seed"]
    split_seed = seed if config.split_seed is None else config.split_seed
    if config.train_size is not None:
        size = config.train_size
        dataset = fitting(lambda: data.subset(dataset, size, split_seed))
    training = dataset.train_images, dataset.train_labels
    validation = test = dataset.test_images, dataset.test_labels
    if config.validate_on != "test":
        share = config.validation_fraction
        training, validation = _cut(
            training, share, split_seed, Purpose.SPLIT, "validation_fraction"
        )
    held_out = None
    options = config.options
    if isinstance(options, AcceptanceOptions) and options.accept_batch == "held-out":
        training, held_out = _cut(
            training,
            options.held_out_fraction,
            split_seed,
            Purpose.HELD_OUT_SPLIT,
            f"{config.method}.held_out_fraction",
        )

    def batches(part: tuple[Tensor, Tensor], **options: Any) -> data.Batches:
        return data.Batches(
            *part,
            **{"batch_size": config.batch_size, **options},
            seed=seed,
            mean=dataset.mean,
            std=dataset.std,
            scale=dataset.scale,
            device=device,
            channels_last=channels_last,
        )

    return Division(
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


def fitting(make: Callable[[], Any], key: str = "") -> Any:
    """Turn a value that does not fit the data or the model into an error of the config."""
    try:
        return make()
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{key}{error}") from None


def _cut(
    part: tuple[Tensor, Tensor], share: float, seed: int, purpose: Purpose, key: str
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Divide a part in two, the second one as large as a share of it."""
    images, labels = part
    kept, apart = fitting(
        lambda: data.split(len(labels), share, seed, purpose), f"{key} = {share}: "
    )
    return (images[kept], labels[kept]), (images[apart], labels[apart])
