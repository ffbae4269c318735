"""From a name to a net that is known to fit the data."""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from annealtune.errors import ConfigError
from annealtune.training.config.names import ARCHITECTURES, parse
from annealtune.training.factories import call_factory, in_one_line, is_factory
from annealtune.training.task import Task

from .nets import MLP, VGG16, ResNet34, SmallCNN


def build(name: str, task: Task, *, pad: int | None = None) -> nn.Module:
    """Build a model by name and check that its output fits the task.

    The initial weights come from torch's global generator alone: the same ``torch.manual_seed``
    gives the same weights. The check leaves that generator, the weights and the mode as they were.

    Args:
        name: ``vgg16``, ``resnet34``, ``small-cnn`` or ``mlp``, each with ``-wK`` for widths
            divided by K, or ``package.module:factory``: a callable that returns an
            ``nn.Module`` and takes any of what `Task.told` names by keyword; ``image_size`` is
            that after padding.
        task: What goes in and what must come out.
        pad: Zero-pad both sides of images to a multiple of this. ``None``: 32 for ``vgg16``, no
            padding for other models. 0: never. If it changes the size, the model is a
            ``nn.Sequential`` of the layers ``pad`` and ``net``.

    Raises:
        ConfigError: If the name is unknown, the model cannot be made for such data, or it does not
            give what the task asks for.

    Example:
        >>> net = build("vgg16-w16", Task.of_images(channels=1, image_size=(28, 28), classes=10))
        >>> net(torch.zeros(4, 1, 28, 28)).shape
        torch.Size([4, 10])
    """
    shape = _padded_shape(name, task, pad)
    make = _from_factory if is_factory(name) else _built_in
    net = make(name, task, shape)
    if shape != task.input_shape:
        padding = _zero_padding(task.input_shape[1:], shape[1:])
        net = nn.Sequential(OrderedDict(pad=padding, net=net))
    _check_output(name, net, task)
    return net


def _padded_shape(name: str, task: Task, pad: int | None) -> tuple[int, ...]:
    """Return the shape of a sample after padding, which adds zeros to normalised images."""
    if not task.is_image:
        if pad is not None:
            raise ConfigError(
                f"pad = {pad}: only images are padded, got samples of shape {task.input_shape}"
            )
        return task.input_shape
    architecture = None if is_factory(name) else ARCHITECTURES[parse(name)[0]]
    if pad is None:
        pad = architecture.multiple if architecture else 0
    multiple = pad or 1
    height, width = (-(-side // multiple) * multiple for side in task.input_shape[1:])
    if architecture and min(height, width) < architecture.smallest_side:
        smallest = architecture.smallest_side
        raise ConfigError(
            f"model = {name!r} needs images of at least {smallest}x{smallest}, got "
            f"{height}x{width}; set pad = {smallest} or take another model"
        )
    return task.input_shape[0], height, width


def _built_in(name: str, task: Task, input_shape: tuple[int, ...]) -> nn.Module:
    architecture, divisor = parse(name)
    if architecture == "mlp" and task.input_type != "int64":
        return MLP(input_shape=input_shape, output_shape=task.output_shape, divisor=divisor)
    if not task.is_image or len(task.output_shape) != 1:
        raise ConfigError(
            f"model = {name!r}: is made for {'numbers' if architecture == 'mlp' else 'images'}, "
            f"got {task.input_type} samples of shape {task.input_shape} and outputs of shape "
            f"{task.output_shape}; mlp takes all numbers that are no tokens, "
            "package.module:factory anything"
        )
    channels, height, width = input_shape
    arguments: dict[str, Any] = {
        "channels": channels,
        "classes": task.output_shape[0],
        "divisor": divisor,
    }
    if architecture == "vgg16":
        return VGG16(**arguments)
    if architecture == "resnet34":
        return ResNet34(**arguments)
    return SmallCNN(image_size=(height, width), **arguments)


def _from_factory(name: str, task: Task, input_shape: tuple[int, ...]) -> nn.Module:
    net = call_factory("model", name, task.told(input_shape))
    if not isinstance(net, nn.Module):
        raise ConfigError(
            f"model = {name!r}: must return a torch.nn.Module, got {type(net).__name__}"
        )
    trained = [p.requires_grad for p in net.parameters()]
    if trained and not any(trained):
        raise ConfigError(
            f"model = {name!r}: must have a parameter to train, got none of {len(trained)} that "
            "requires a gradient"
        )
    return net


def _zero_padding(image_size: tuple[int, ...], size: tuple[int, ...]) -> nn.ZeroPad2d:
    rows, columns = (after - before for before, after in zip(image_size, size, strict=True))
    top, left = rows // 2, columns // 2
    return nn.ZeroPad2d((left, columns - left, top, rows - top))


def _check_output(name: str, net: nn.Module, task: Task) -> None:
    """Pass two blank samples through the net, leaving no trace."""
    device = next((p.device for p in net.parameters()), torch.device("cpu"))
    modes = {module: module.training for module in net.modules()}
    cuda = [device] if device.type == "cuda" else []
    what = "images" if task.is_image else "samples"
    try:
        with torch.random.fork_rng(devices=cuda), torch.no_grad():
            outputs = net.eval()(torch.zeros(2, *task.input_shape, dtype=task.dtype, device=device))
    except Exception as error:  # the net may be the user's: whatever it raises, say where
        raise ConfigError(
            f"model = {name!r}: {what} of shape {task.input_shape} do not pass through it: "
            f"{in_one_line(error)}"
        ) from error
    finally:
        for module, training in modes.items():
            module.training = training
    found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if not (isinstance(found, tuple) and found[:1] == (2,) and task.accepts(found)):
        raise ConfigError(
            f"model = {name!r}: two {what} must give outputs of shape {(2, *task.output_shape)}, "
            f"got {found}"
        )
