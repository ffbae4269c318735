"""What a user's own data factory may return, read into memory and made a `Dataset`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from annealtune.errors import DataError, did_you_mean
from annealtune.training.factories import in_one_line
from annealtune.training.task import KINDS, Kind

from .dataset import Dataset, channel_statistics

CONTRACT = (
    "a pair (train, test), each a torch Dataset or a tuple (inputs, targets) of tensors or arrays; "
    "see docs/own-data.md"
)
# Up to here whole numbers may be labels or tokens however few samples there are; beyond both this
# and their own number they are ids or amounts, and a model of that size would fill the memory.
_SURELY_LABELS = 1_000
_SURELY_TOKENS = 1_000_000
# Of grey images, those in colour, and those with transparency.
_CHANNELS = (1, 3, 4)


class Part(NamedTuple):
    """Inputs and targets as they were given, and the names of the classes if the data has them."""

    inputs: Tensor
    targets: Tensor
    class_names: tuple[str, ...] = ()


def as_dataset(name: str, returned: Any) -> Dataset:
    """Return what a factory returned as a data set in memory.

    Args:
        name: of the factory, for messages.
        returned: a `Dataset` of ours; a pair (train, test); the pair and a third element, the kind
            or a dictionary of options; four tensors or arrays (train inputs, train targets, test
            inputs, test targets); or a dictionary with ``train``, ``test`` and options.

    Raises:
        DataError: for anything else, and for data that cannot be trained on.
    """
    if isinstance(returned, Dataset):
        return returned
    try:
        train, test, options = _taken_apart(returned)
        _check_options(options)
        length = options.get("length")
        parts = read_part("train", train, length), read_part("test", test, length)
        return _made(name, *parts, options)
    except (TypeError, ValueError) as error:
        raise DataError(f"data = {name!r}: {error}") from error


def _taken_apart(returned: Any) -> tuple[Any, Any, dict[str, Any]]:
    if isinstance(returned, Mapping):
        options = dict(returned)
        if not options.keys() >= {"train", "test"}:
            raise ValueError(
                "a dictionary must have the keys 'train' and 'test', got "
                f"{', '.join(map(repr, options)) or 'none'}"
            )
        return options.pop("train"), options.pop("test"), options
    if not isinstance(returned, tuple | list):
        raise TypeError(f"must return {CONTRACT}; got {type(returned).__name__}")
    if len(returned) == 2:
        return returned[0], returned[1], {}
    if len(returned) == 3 and isinstance(returned[2], str | Mapping):
        told = returned[2]
        return returned[0], returned[1], {"kind": told} if isinstance(told, str) else dict(told)
    if len(returned) == 4:
        return tuple(returned[:2]), tuple(returned[2:]), {}
    raise ValueError(f"must return {CONTRACT}; got {len(returned)} things")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _are_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "kind": (f"one of {', '.join(KINDS)}", lambda value: value in KINDS),
    "classes": (
        "the names of the classes, or how many there are",
        lambda value: _are_names(value) or _is_count(value),
    ),
    "vocabulary": ("how many tokens there are", _is_count),
    "length": ("how many tokens a window has", _is_count),
    "standardize": ("True or False", lambda value: isinstance(value, bool)),
}


def _check_options(options: dict[str, Any]) -> None:
    for key, value in options.items():
        if key not in _RULES:
            hint = did_you_mean(str(key), _RULES) or f"; known: {', '.join(_RULES)}"
            raise ValueError(f"unknown option {key!r}{hint}")
        rule, is_right = _RULES[key]
        if not is_right(value):
            raise ValueError(f"{key} must be {rule}, got {value!r}")


def read_part(what: str, given: Any, length: int | None) -> Part:
    """Return inputs and targets of one part, as uint8, int64, float32 or float64.

    Args:
        what: its name, for messages.
        given: a map-style torch Dataset, a tuple (inputs, targets), or one long text of tokens.
        length: how many tokens a window of such a text has.

    Raises:
        TypeError: for anything else.
        ValueError: for samples that do not fit together.
    """
    if isinstance(given, DataLoader | IterableDataset):
        raise TypeError(
            f"{what} must be a Dataset with a length, or tensors, got {type(given).__name__}; "
            "return the .dataset of a DataLoader, read an IterableDataset into tensors"
        )
    if isinstance(given, TensorDataset):
        given = given.tensors
    if isinstance(given, tuple | list) and len(given) == 2:
        return Part(_tensor(f"{what} inputs", given[0]), _tensor(f"{what} targets", given[1]))
    if isinstance(given, Tensor | np.ndarray):
        return _windows(what, _tensor(what, given), length)
    if hasattr(given, "__getitem__") and hasattr(given, "__len__"):
        return _read(what, given)
    raise TypeError(
        f"{what} must be a torch Dataset or a tuple (inputs, targets), got {type(given).__name__}"
    )


def _windows(what: str, tokens: Tensor, length: int | None) -> Part:
    """Cut one long text into windows; the target of each token is the one after it."""
    if tokens.ndim != 1 or tokens.is_floating_point() or length is None:
        raise ValueError(
            f"{what} must be a tuple (inputs, targets), or one long text: whole numbers of shape "
            f"(tokens,), with the option length; got {tokens.dtype} of shape {tuple(tokens.shape)} "
            f"and length {length}"
        )
    count = (len(tokens) - 1) // length
    if count < 1:
        raise ValueError(
            f"{what} must be longer than one window of {length} tokens, got {len(tokens)} tokens"
        )
    starts, ends = tokens[: count * length].long(), tokens[1 : count * length + 1].long()
    return Part(starts.view(count, length), ends.view(count, length))


def _read(what: str, samples: Any) -> Part:
    """Read a torch Dataset into memory, sample by sample."""
    if len(samples) == 0:
        raise ValueError(f"{what} must not be empty, got a {type(samples).__name__} of length 0")
    columns: tuple[list[Tensor], list[Tensor]] = ([], [])
    for number in range(len(samples)):
        try:
            sample = samples[number]
        except Exception as error:  # the data set is the user's: whatever it raises, say where
            raise ValueError(f"{what}[{number}] failed: {in_one_line(error)}") from error
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise TypeError(
                f"{what}[{number}] must be a pair (input, target), got {type(sample).__name__}"
            )
        for kind, value, column in zip(("inputs", "targets"), sample, columns, strict=True):
            tensor = _tensor(f"{what}[{number}] {kind}", value)
            column.append(tensor)
            if (tensor.shape, tensor.dtype) != (column[0].shape, column[0].dtype):
                raise ValueError(
                    f"{what}[{number}]: all {kind} must have one shape and dtype, got "
                    f"{tuple(tensor.shape)} of {tensor.dtype}, the first is "
                    f"{tuple(column[0].shape)} of {column[0].dtype}"
                )
    names = getattr(samples, "classes", ())
    inputs, targets = map(torch.stack, columns)
    return Part(inputs, targets, tuple(names) if _are_names(names) else ())


def _tensor(what: str, value: Any) -> Tensor:
    """Return numbers of any kind as a tensor of uint8, int64, float32 or float64."""
    if isinstance(value, Tensor):
        if value.is_nested or value.layout is not torch.strided or value.is_complex():
            raise TypeError(
                f"{what} must be plain real numbers in rows of one length, got a tensor of "
                f"{value.dtype}, {value.layout}"
            )
        tensor = value.detach().cpu()
    else:
        tensor = torch.from_numpy(_array(what, value))
    if tensor.dtype in (torch.uint8, torch.float64):
        return tensor
    return tensor.float() if tensor.is_floating_point() else tensor.long()


def _array(what: str, value: Any) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise TypeError(f"{what} must be numbers in rows of one length: {error}") from None
    if array.dtype.kind not in "biuf" or np.ma.is_masked(value):
        raise TypeError(
            f"{what} must be numbers, got {type(value).__name__} of {array.dtype}; turn text and "
            "categories into numbers, and fill masked values, in the factory"
        )
    if hasattr(value, "getbands"):  # a PIL picture: (height, width) or (height, width, channels)
        array = array.reshape(*array.shape[:2], -1).transpose(2, 0, 1)
    if not array.dtype.isnative:  # torch knows the byte order of this machine alone
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "u" and array.itemsize > 1:
        array = array.astype(np.int64)
    return np.array(array)  # a copy that may be written to, in the order of its axes


def _made(name: str, train: Part, test: Part, options: dict[str, Any]) -> Dataset:
    for what, part in (("train", train), ("test", test)):
        shapes = tuple(part.inputs.shape), tuple(part.targets.shape)
        if not (part.inputs.numel() and shapes[0] and shapes[0][:1] == shapes[1][:1]):
            raise ValueError(
                f"{what} must have one target for each input and at least one of them, got inputs "
                f"of shape {shapes[0]} and targets of {shapes[1]}"
            )
    inputs = [_with_channels(part.inputs) for part in (train, test)]
    if any(each.dtype == torch.float64 for each in inputs):
        # Rounded only after they are standardized: of a time stamp float32 would keep minutes.
        dtype = torch.float64 if options.get("standardize") else torch.float32
        inputs = [each.to(dtype) if each.is_floating_point() else each for each in inputs]
    kind = options.get("kind") or _kind(train)
    targets = [_as_targets(kind, part.targets) for part in (train, test)]
    arguments: dict[str, Any] = {"kind": kind, "scale": 1.0}
    if kind == "classification":
        arguments["classes"] = _classes(options.get("classes") or train.class_names, targets)
    elif "classes" in options:
        raise ValueError(f"classes: only classification has classes, not {kind}")
    if inputs[0].dtype == torch.int64:
        tokens = [*inputs, *targets] if kind == "tokens" else inputs
        arguments["vocabulary"] = options.get("vocabulary") or _vocabulary(tokens)
    elif "vocabulary" in options:
        raise ValueError(f"vocabulary: only int64 inputs have one, got {inputs[0].dtype}")
    arguments |= _scaling(inputs[0], options.get("standardize"))
    return Dataset(name, inputs[0], targets[0], inputs[1], targets[1], **arguments)


def _with_channels(inputs: Tensor) -> Tensor:
    """Give grey images their one channel; bytes of another shape are plain numbers."""
    if inputs.dtype == torch.uint8 and inputs.ndim == 4:
        if inputs.shape[-1] in _CHANNELS and inputs.shape[1] not in _CHANNELS:
            raise ValueError(
                "inputs: uint8 images must have their channels first, (images, channels, height, "
                f"width), got {tuple(inputs.shape)}; use permute(0, 3, 1, 2)"
            )
        return inputs
    if inputs.ndim == 1 or (inputs.dtype == torch.uint8 and inputs.ndim == 3):
        inputs = inputs[:, None]
    return inputs.float() if inputs.dtype == torch.uint8 and inputs.ndim != 4 else inputs


def _kind(part: Part) -> Kind:
    """Find out what is to be learnt from the first part."""
    if part.targets.is_floating_point():
        return "regression"
    if part.targets.ndim == 1:
        return "classification"
    if part.inputs.dtype == torch.int64 and part.inputs.shape == part.targets.shape:
        return "tokens"
    raise ValueError(
        "the kind cannot be told: targets must be whole numbers of shape (samples,) for "
        "classification, floats for regression, or whole numbers of the shape of the inputs for "
        f"tokens, got {part.targets.dtype} of shape {tuple(part.targets.shape)} and inputs of "
        f"{tuple(part.inputs.shape)}"
    )


def _as_targets(kind: Kind, targets: Tensor) -> Tensor:
    if kind == "regression":
        return (targets[:, None] if targets.ndim == 1 else targets).float()
    if targets.is_floating_point():
        raise TypeError(
            f"targets must be whole numbers for {kind}, got {targets.dtype}; convert them with "
            ".long(), or take kind 'regression'"
        )
    return targets.long()


def _classes(told: Any, targets: Sequence[Tensor]) -> tuple[str, ...]:
    if not told:
        told = max(_highest(targets) + 1, 2)
        if told > max(len(targets[0]), _SURELY_LABELS + 1):
            raise ValueError(
                f"labels must be 0..C-1 for C classes, got up to {told - 1}, with "
                f"{len(targets[0])} training samples; number them, give classes=..., or use floats "
                "or kind 'regression' if they are numbers to predict"
            )
    return tuple(map(str, range(told))) if isinstance(told, int) else tuple(told)


def _vocabulary(tokens: Sequence[Tensor]) -> int:
    """Return how many tokens there are; those of the training set come first."""
    count = max(_highest(tokens) + 1, 1)
    if count > max(tokens[0].numel(), _SURELY_TOKENS):
        raise ValueError(
            f"whole numbers are taken as tokens, 0..V-1 for a vocabulary of V, got up to "
            f"{count - 1}; make numbers that are no tokens floats with .float(), else number the "
            "tokens or give vocabulary=..."
        )
    return count


def _highest(values: Sequence[Tensor]) -> int:
    return max(int(each.max()) for each in values)


def _scaling(inputs: Tensor, standardize: bool | None) -> dict[str, Any]:
    if inputs.dtype == torch.uint8:
        if standardize is False:
            raise ValueError("standardize = False: uint8 images are always normalised; use floats")
        mean, std = channel_statistics(inputs.numpy())
        return {"mean": mean, "std": std, "scale": 255.0}
    if not standardize:
        return {}
    if inputs.dtype == torch.int64:
        raise ValueError("standardize = True: tokens are no numbers to standardize")
    axes = [0, *range(2, inputs.ndim)]
    numbers = inputs.double()
    spread = numbers.std(axes, correction=0)
    spread[spread == 0] = 1.0  # a feature without any spread is only centered
    return {"mean": tuple(numbers.mean(axes).tolist()), "std": tuple(spread.tolist())}
