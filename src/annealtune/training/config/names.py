"""The data sets and models that have a name. Known without importing torch.

A model's name is an architecture and, if wanted, ``-wK``: every width divided by K. ``vgg16-w8`` is
VGG16 with an eighth of its channels.
"""

import re
from typing import NamedTuple

from annealtune.errors import ConfigError, unknown_name
from annealtune.training.factories import is_factory, split_factory

DATASETS = {
    "digits": "1,797 grey 8x8 digits, embedded in scikit-learn: no download",
    "fashion-mnist": "70,000 grey 28x28 articles of clothing",
    "cifar10": "60,000 colour 32x32 photographs",
    "image-folder": "your own pictures: DIR/train/CLASS/*.png and DIR/test/CLASS/*.png",
}
_OR_ELSE = "package.module:factory"


class Architecture(NamedTuple):
    """What is known about a net before it is built."""

    narrowest: int
    """Width of its narrowest layer: the largest K of ``-wK``."""
    smallest_side: int
    """The smallest height and width that leave something for the last layer to see."""
    because: str
    """Why no smaller."""
    multiple: int = 1
    """Images are zero-padded until their sides are a multiple of this."""


_VGG = Architecture(64, 32, "five poolings halve the image five times", multiple=32)
_RESNET = Architecture(64, 8, "three stages halve the image three times")

ARCHITECTURES = {
    "mlp": Architecture(128, 1, "there must be a pixel"),
    "small-cnn": Architecture(16, 4, "two poolings halve the image twice"),
    "resnet18": _RESNET,
    "resnet34": _RESNET,
    "resnet50": _RESNET,
    "vgg11": _VGG,
    "vgg13": _VGG,
    "vgg16": _VGG,
    "vgg19": _VGG,
}


class ModelName(NamedTuple):
    """A built-in model's name, taken apart."""

    architecture: str
    divisor: int


def check_data(name: str) -> str:
    """Return the name if it is a data set's or has the form ``package.module:factory``.

    Raises:
        ConfigError: Otherwise, with the nearest name.
    """
    if is_factory(name):
        split_factory("data", name)
    elif name not in DATASETS:
        raise unknown_name("data", name, DATASETS, or_else=_OR_ELSE)
    return name


def check_model(name: str) -> str:
    """Return the name if it is a model's or has the form ``package.module:factory``.

    Raises:
        ConfigError: Otherwise, with the nearest name.
    """
    if is_factory(name):
        split_factory("model", name)
    else:
        parse(name)
    return name


def parse(name: str) -> ModelName:
    """Take a built-in model's name apart.

    Raises:
        ConfigError: For an unknown architecture, or a K that leaves a layer without channels.

    Example:
        >>> parse("vgg16-w8")
        ModelName(architecture='vgg16', divisor=8)
    """
    suffix = re.search(r"-w(\d+)$", name)
    architecture = name[: suffix.start()] if suffix else name
    if architecture not in ARCHITECTURES:
        width = suffix[0] if suffix else ""
        known = [other + width for other in ARCHITECTURES]
        raise unknown_name("model", name, known, or_else=_OR_ELSE)
    divisor = int(suffix[1]) if suffix else 1
    narrowest = ARCHITECTURES[architecture].narrowest
    if not 1 <= divisor <= narrowest:
        raise ConfigError(
            f"model = {name!r}: -w{divisor} divides every width by {divisor}, but the narrowest "
            f"layer of {architecture} has {narrowest} units; use -w1 to -w{narrowest}"
        )
    return ModelName(architecture, divisor)


def padded_size(name: str, image_size: tuple[int, int], pad: int | None = None) -> tuple[int, int]:
    """Return the size to which a model zero-pads its images; the same size if it does not.

    The padding is the model's first layer, on all four sides (an odd rest goes to the right and
    the bottom). It adds zeros to normalised images, as the convolutions' own padding does.

    Args:
        name: A built-in model or ``package.module:factory``.
        image_size: Height and width of the images.
        pad: Zero-pad both sides of the image to a multiple of this. ``None``: 32 for ``vgg*``, no
            padding for other models. 0: never pad.

    Raises:
        ConfigError: If ``pad`` is negative, or the padded image is too small for the model.

    Example:
        >>> padded_size("vgg16", (28, 28)), padded_size("resnet34", (28, 28))
        ((32, 32), (28, 28))
    """
    architecture = None if is_factory(name) else ARCHITECTURES[parse(name).architecture]
    if pad is None:
        multiple = architecture.multiple if architecture else 1
    elif pad >= 0:
        multiple = pad or 1
    else:
        raise ConfigError(f"pad = {pad}: must be 0 (never pad) or a positive multiple")
    height, width = (-(-side // multiple) * multiple for side in image_size)
    if architecture and min(height, width) < architecture.smallest_side:
        smallest = architecture.smallest_side
        raise ConfigError(
            f"model = {name!r} needs images of at least {smallest}x{smallest} "
            f"({architecture.because}), got {height}x{width}; set pad = {smallest} or take "
            "another model"
        )
    return height, width
