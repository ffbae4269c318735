"""From a name to a net that is known to fit the data."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from annealtune.errors import ConfigError
from annealtune.training.config.names import padded_size, parse
from annealtune.training.factories import import_factory, in_one_line, is_factory

from .mlp import MLP
from .resnet import ResNet
from .small_cnn import SmallCNN
from .vgg import VGG


def build(
    name: str,
    *,
    channels: int,
    image_size: tuple[int, int],
    classes: int,
    pad: int | None = None,
) -> nn.Module:
    """Build a model by name and check that its output fits the classes.

    The initial weights come from torch's global generator alone: the same ``torch.manual_seed``
    gives the same weights. The check leaves that generator, the weights and the mode as they were.

    Args:
        name: ``vgg11|13|16|19``, ``resnet18|34|50``, ``small-cnn`` or ``mlp``, each with ``-wK``
            for widths divided by K, or ``package.module:factory``: a callable that takes
            ``channels``, ``image_size`` (after padding) and ``classes`` by keyword and returns
            an ``nn.Module``.
        channels: Planes of an image.
        image_size: Height and width of the images as the data set holds them.
        classes: Number of classes.
        pad: Zero-pad images to a multiple of this, see `padded_size`. If it changes the size, the
            model is a ``nn.Sequential`` of the layers ``pad`` and ``net``.

    Raises:
        ConfigError: If the name is unknown, the image too small, or the model does not give one
            score per class for each image.
        ValueError: If channels, image size or classes are not positive.

    Example:
        >>> net = build("vgg16-w16", channels=1, image_size=(28, 28), classes=10)
        >>> net(torch.zeros(4, 1, 28, 28)).shape
        torch.Size([4, 10])
    """
    for argument, number in (("channels", channels), ("classes", classes)):
        if number < 1:
            raise ValueError(f"build({argument}=...) must be positive, got {number}")
    if min(image_size) < 1:
        raise ValueError(f"build(image_size=...) must be positive, got {image_size}")
    size = padded_size(name, image_size, pad)
    make = _from_factory if is_factory(name) else _built_in
    net = make(name, channels, size, classes)
    if size != tuple(image_size):
        net = nn.Sequential(OrderedDict(pad=_zero_padding(image_size, size), net=net))
    _check_output(name, net, (channels, *image_size), classes)
    return net


def _built_in(name: str, channels: int, image_size: tuple[int, int], classes: int) -> nn.Module:
    architecture, divisor = parse(name)
    if architecture.startswith("vgg"):
        depth = int(architecture.removeprefix("vgg"))
        return VGG(depth, channels=channels, classes=classes, divisor=divisor)
    if architecture.startswith("resnet"):
        depth = int(architecture.removeprefix("resnet"))
        return ResNet(depth, channels=channels, classes=classes, divisor=divisor)
    sized: type[SmallCNN] | type[MLP] = {"small-cnn": SmallCNN, "mlp": MLP}[architecture]
    return sized(channels=channels, image_size=image_size, classes=classes, divisor=divisor)


def _from_factory(name: str, channels: int, image_size: tuple[int, int], classes: int) -> nn.Module:
    factory = import_factory("model", name)
    try:
        net = factory(channels=channels, image_size=image_size, classes=classes)
    except Exception as error:  # the factory is the user's: whatever it raises, say where
        raise ConfigError(
            f"model = {name!r}: calling it with channels={channels}, image_size={image_size}, "
            f"classes={classes} failed: {in_one_line(error)}"
        ) from error
    if not isinstance(net, nn.Module):
        raise ConfigError(
            f"model = {name!r}: must return a torch.nn.Module, got {type(net).__name__}"
        )
    return net


def _zero_padding(image_size: tuple[int, int], size: tuple[int, int]) -> nn.ZeroPad2d:
    rows, columns = (after - before for before, after in zip(image_size, size, strict=True))
    top, left = rows // 2, columns // 2
    return nn.ZeroPad2d((left, columns - left, top, rows - top))


def _check_output(name: str, net: nn.Module, image_shape: tuple[int, ...], classes: int) -> None:
    """Pass two blank images through the net, leaving no trace."""
    device = next((p.device for p in net.parameters()), torch.device("cpu"))
    modes = {module: module.training for module in net.modules()}
    cuda = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=cuda), torch.no_grad():
            scores = net.eval()(torch.zeros(2, *image_shape, device=device))
    except Exception as error:  # the net may be the user's: whatever it raises, say where
        raise ConfigError(
            f"model = {name!r}: images of shape {image_shape} do not pass through it: "
            f"{in_one_line(error)}"
        ) from error
    finally:
        for module, training in modes.items():
            module.training = training
    found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if found != (2, classes):
        raise ConfigError(
            f"model = {name!r}: two images must give scores of shape (2, {classes}), one per "
            f"class, got {found}"
        )
