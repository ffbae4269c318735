"""The data sets and models that have a name. Known without importing torch.

A model's name is an architecture and, if wanted, ``-wK``: every width divided by K. ``vgg16-w8`` is
VGG16 with an eighth of its channels.
"""

import re
from typing import NamedTuple

from annealtune.errors import ConfigError
from annealtune.training.factories import check_name, is_factory

DATASETS = ("digits", "fashion-mnist", "cifar10", "image-folder")
_OR_ELSE = "package.module:factory"


class Architecture(NamedTuple):
    """What is known about a net before it is built."""

    narrowest: int
    """Width of its narrowest layer: the largest K of ``-wK``."""
    smallest_side: int
    """The smallest height and width that leave something for the last layer to see."""
    multiple: int = 1
    """Images are zero-padded until their sides are a multiple of this."""


ARCHITECTURES = {
    "mlp": Architecture(128, 1),
    "small-cnn": Architecture(16, 4),  # two poolings halve the image twice
    "resnet34": Architecture(64, 8),  # three stages halve it
    "vgg16": Architecture(64, 32, multiple=32),  # five poolings
}


def check_data(name: str) -> str:
    """Return the name if it is a data set's or has the form ``package.module:factory``.

    Raises:
        ConfigError: Otherwise, with the nearest name.
    """
    return check_name("data", name, DATASETS, _OR_ELSE)


def check_model(name: str) -> str:
    """Return the name if it is a model's or has the form ``package.module:factory``.

    Raises:
        ConfigError: Otherwise, with the nearest name.
    """
    if is_factory(name):
        return check_name("model", name, (), _OR_ELSE)
    parse(name)
    return name


def parse(name: str) -> tuple[str, int]:
    """Take a built-in model's name apart: its architecture and what its widths are divided by.

    Raises:
        ConfigError: For an unknown architecture, or a K that leaves a layer without channels.

    Example:
        >>> parse("vgg16-w8")
        ('vgg16', 8)
    """
    suffix = re.search(r"-w(\d+)$", name)
    architecture = name[: suffix.start()] if suffix else name
    width = suffix[0] if suffix else ""
    check_name("model", name, [other + width for other in ARCHITECTURES], _OR_ELSE)
    divisor = int(suffix[1]) if suffix else 1
    narrowest = ARCHITECTURES[architecture].narrowest
    if not 1 <= divisor <= narrowest:
        raise ConfigError(
            f"model = {name!r}: -w{divisor} divides every width by {divisor}, but the narrowest "
            f"layer of {architecture} has {narrowest} units; use -w1 to -w{narrowest}"
        )
    return architecture, divisor
