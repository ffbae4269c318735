"""What a user's own data factory may return, made a `Dataset`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from annealtune.errors import DataError, did_you_mean
from annealtune.training.task import KINDS, Kind

from .dataset import Dataset
from .intake import Part, are_names, read_part
from .statistics import channel_statistics

CONTRACT = (
    "a pair (train, test), each a torch Dataset or a tuple (inputs, targets) of tensors or arrays; "
    "see docs/own-data.md"
)
# Up to here whole numbers may be labels or tokens however few samples there are; beyond both this
# and their own number they are ids or amounts, and a model of that size would fill the memory.
_SURELY_LABELS = 1_000
_SURELY_TOKENS = 1_000_000
_MOST_CLASSES = 1_000_000
# Of grey images, those in colour, and those with transparency.
_CHANNELS = (1, 3, 4)


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
        return _made(
            name,
            read_part("train", train, options.get("length")),
            read_part("test", test, options.get("length")),
            options,
        )
    except (TypeError, ValueError) as error:
        raise DataError(f"data = {name!r}: {error}") from error


def _taken_apart(returned: Any) -> tuple[Any, Any, dict[str, Any]]:
    if isinstance(returned, Mapping):
        options = dict(returned)
        missing = [key for key in ("train", "test") if key not in options]
        if missing:
            raise ValueError(
                "a dictionary must have the keys 'train' and 'test', got "
                f"{', '.join(map(repr, options)) or 'none'}"
            )
        return options.pop("train"), options.pop("test"), options
    if isinstance(returned, tuple | list):
        if len(returned) == 2:
            return returned[0], returned[1], {}
        if len(returned) == 3 and isinstance(returned[2], str | Mapping):
            told = returned[2]
            return returned[0], returned[1], {"kind": told} if isinstance(told, str) else dict(told)
        if len(returned) == 4:
            return tuple(returned[:2]), tuple(returned[2:]), {}
        raise ValueError(f"must return {CONTRACT}; got {len(returned)} things")
    raise TypeError(f"must return {CONTRACT}; got {type(returned).__name__}")


def _check_options(options: dict[str, Any]) -> None:
    for key, value in options.items():
        if key not in _RULES:
            hint = did_you_mean(str(key), _RULES) or f"; known: {', '.join(_RULES)}"
            raise ValueError(f"unknown option {key!r}{hint}")
        rule, is_right = _RULES[key]
        if not is_right(value):
            raise ValueError(f"{key} must be {rule}, got {value!r}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "kind": (f"one of {', '.join(KINDS)}", lambda value: isinstance(value, str) and value in KINDS),
    "classes": (
        f"the names of the classes, or how many there are, up to {_MOST_CLASSES:,}",
        lambda value: are_names(value) or (_is_count(value) and value <= _MOST_CLASSES),
    ),
    "vocabulary": ("how many tokens there are", _is_count),
    "length": ("how many tokens a window has", _is_count),
    "standardize": ("True or False", lambda value: isinstance(value, bool)),
}


def _made(name: str, train: Part, test: Part, options: dict[str, Any]) -> Dataset:
    inputs = [
        _with_channels(what, part.inputs) for what, part in (("train", train), ("test", test))
    ]
    for what, part in (("train", train), ("test", test)):
        if (
            part.inputs.ndim < 1
            or part.inputs.numel() == 0
            or part.inputs.shape[:1] != part.targets.shape[:1]
        ):
            raise ValueError(
                f"{what} must have one target for each input and at least one of them, got inputs "
                f"of shape {tuple(part.inputs.shape)} and targets of {tuple(part.targets.shape)}"
            )
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


def _with_channels(what: str, inputs: Tensor) -> Tensor:
    """Give grey images their one channel; bytes of another shape are plain numbers."""
    if (
        inputs.dtype == torch.uint8
        and inputs.ndim == 4
        and inputs.shape[-1] in _CHANNELS
        and inputs.shape[1] not in _CHANNELS
    ):
        raise ValueError(
            f"{what} inputs: uint8 images must have their channels first, (images, channels, "
            f"height, width), got {tuple(inputs.shape)}; use permute(0, 3, 1, 2), or "
            "transpose(0, 3, 1, 2) of an array"
        )
    if inputs.dtype == torch.uint8 and inputs.ndim == 3:
        return inputs[:, None]
    if inputs.ndim == 1:
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
        told = max(_count(targets), 2)
        if told > max(len(targets[0]), _SURELY_LABELS + 1):
            raise ValueError(
                f"labels must be 0..C-1 for C classes, got up to {_highest(targets)}, with "
                f"{len(targets[0])} training samples; number them, give classes=..., or use floats "
                "or kind 'regression' if they are numbers to predict"
            )
    return tuple(map(str, range(told))) if isinstance(told, int) else tuple(told)


def _vocabulary(tokens: Sequence[Tensor]) -> int:
    """Return how many tokens there are; those of the training set come first."""
    count = max(_count(tokens), 1)
    if count > max(tokens[0].numel(), _SURELY_TOKENS):
        raise ValueError(
            f"whole numbers are taken as tokens, 0..V-1 for a vocabulary of V, got up to "
            f"{_highest(tokens)}; make numbers that are no tokens floats with .float(), else "
            "number the tokens or give vocabulary=..."
        )
    return count


def _count(values: Sequence[Tensor]) -> int:
    return max(int(each.max()) for each in values) + 1


def _highest(values: Sequence[Tensor]) -> str:
    """Return the highest value and where it is; training and test take turns."""
    place = max(range(len(values)), key=lambda number: int(values[number].max()))
    highest = int(values[place].max())
    sample = int((values[place] == highest).nonzero()[0, 0])
    return f"{highest} at {('train', 'test')[place % 2]} sample {sample}"


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
