"""What a user's own data factory may return, read into memory and made a `Dataset`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import BeforeValidator, ValidationError
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from annealtune.errors import DataError
from annealtune.training.config import Options, faults
from annealtune.training.config.blocks import Count, Flag
from annealtune.training.factories import in_one_line
from annealtune.training.task import Kind

from .dataset import Dataset, channel_statistics

CONTRACT = (
    "a pair (train, test), each a torch Dataset or a tuple (inputs, targets) of tensors or arrays, "
    "or a dictionary with 'train', 'test' and options; see docs/own-data.md"
)
# Up to here whole numbers may be labels or tokens however few samples there are; beyond both this
# and their own number they are ids or amounts, and a model of that size would fill the memory.
_SURELY_LABELS = 1_001
_SURELY_TOKENS = 1_000_000
# Of grey images, those in colour, and those with transparency.
_CHANNELS = (1, 3, 4)


def _numbered(value: Any) -> Any:
    """Take a number of classes as their names."""
    return tuple(map(str, range(value))) if isinstance(value, int) else value


class DataOptions(Options):
    """What does not follow from the data itself."""

    kind: Kind | None = None
    classes: Annotated[tuple[str, ...], BeforeValidator(_numbered)] = ()
    vocabulary: Count | None = None
    length: Count | None = None
    standardize: Flag = False


class Part(NamedTuple):
    """Inputs and targets as they were given, and the names of the classes if the data has them."""

    inputs: Tensor
    targets: Tensor
    class_names: tuple[str, ...] = ()


def as_dataset(name: str, returned: Any) -> Dataset:
    """Return what a factory returned as a data set in memory.

    Args:
        name: of the factory, for messages.
        returned: an annealtune `Dataset`; a pair (train, test); or a dictionary with ``train``,
            ``test`` and what `DataOptions` has.

    Raises:
        DataError: for anything else, and for data that cannot be trained on.
    """
    if isinstance(returned, Dataset):
        return returned
    try:
        train, test, options = _taken_apart(returned)
        parts = read_part("train", train, options.length), read_part("test", test, options.length)
        return _made(name, *parts, options)
    except (TypeError, ValueError) as error:
        raise DataError(f"data = {name!r}: {error}") from error


def _taken_apart(returned: Any) -> tuple[Any, Any, DataOptions]:
    if isinstance(returned, tuple | list) and len(returned) == 2:
        return returned[0], returned[1], DataOptions()
    if not (isinstance(returned, Mapping) and returned.keys() >= {"train", "test"}):
        raise TypeError(f"must return {CONTRACT}; got {type(returned).__name__}")
    given = dict(returned)
    train, test = given.pop("train"), given.pop("test")
    try:
        return train, test, DataOptions.model_validate(given)
    except ValidationError as error:
        raise ValueError(faults(error, DataOptions)) from None


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
    columns: tuple[list[Tensor], list[Tensor]] = ([], [])
    for number in range(len(samples)):
        try:
            given, wanted = samples[number]
            columns[0].append(_tensor("the input", given))
            columns[1].append(_tensor("the target", wanted))
        except Exception as error:  # the data set is the user's: whatever it raises, say where
            raise ValueError(
                f"{what}[{number}] must be a pair (input, target): {in_one_line(error)}"
            ) from error
    try:
        inputs, targets = map(torch.stack, columns)
    except RuntimeError as error:
        raise ValueError(f"{what} must hold samples of one shape: {error}") from None
    return Part(inputs, targets, tuple(getattr(samples, "classes", ())))


def _tensor(what: str, value: Any) -> Tensor:
    """Return numbers of any kind as a tensor of uint8, int64, float32 or float64."""
    if not isinstance(value, Tensor):
        try:
            array = np.asarray(value)
            if hasattr(value, "getbands"):  # a PIL picture: (height, width) or with channels last
                array = array.reshape(*array.shape[:2], -1).transpose(2, 0, 1)
            value = torch.from_numpy(np.array(array))  # a copy that may be written to
        except (TypeError, ValueError) as error:
            raise TypeError(f"{what} must be numbers in rows of one length: {error}") from None
    tensor: Tensor = value.detach().cpu()
    if tensor.dtype in (torch.uint8, torch.float64):
        return tensor
    return tensor.float() if tensor.is_floating_point() else tensor.long()


def _made(name: str, train: Part, test: Part, options: DataOptions) -> Dataset:
    if not all(part.inputs.numel() and part.targets.numel() for part in (train, test)):
        raise ValueError("train and test must hold at least one sample each")
    inputs = [_with_channels(part.inputs) for part in (train, test)]
    if any(each.dtype == torch.float64 for each in inputs):
        # Rounded only after they are standardized: of a time stamp float32 would keep minutes.
        dtype = torch.float64 if options.standardize else torch.float32
        inputs = [each.to(dtype) if each.is_floating_point() else each for each in inputs]
    kind = options.kind or _kind(train)
    targets = [_as_targets(kind, part.targets) for part in (train, test)]
    is_used = {"classes": kind == "classification", "vocabulary": inputs[0].dtype == torch.int64}
    for option, used in is_used.items():
        if getattr(options, option) and not used:
            raise ValueError(f"{option}: {kind} from {inputs[0].dtype} inputs has no use for it")
    arguments: dict[str, Any] = {"kind": kind, "scale": 1.0}
    if kind == "classification":
        told = options.classes or train.class_names
        count = 0 if told else _count(targets, len(targets[0]), _SURELY_LABELS)
        arguments["classes"] = told or _numbered(max(count, 2))
    if inputs[0].dtype == torch.int64:
        tokens = [*inputs, *targets] if kind == "tokens" else inputs
        arguments["vocabulary"] = options.vocabulary or max(
            _count(tokens, tokens[0].numel(), _SURELY_TOKENS), 1
        )
    arguments |= _scaling(inputs[0], options.standardize)
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


def _count(values: Sequence[Tensor], samples: int, surely: int) -> int:
    """Return how many labels or tokens there are: 0 to the highest one."""
    count = max(int(each.max()) for each in values) + 1
    if count > max(samples, surely):
        raise ValueError(
            f"labels must be 0..C-1 for C classes, tokens 0..V-1 for a vocabulary of V, got up to "
            f"{count - 1} in {samples}; number them, give classes=... or vocabulary=..., or make "
            "numbers that are neither floats with .float()"
        )
    return count


def _scaling(inputs: Tensor, standardize: bool) -> dict[str, Any]:
    if inputs.dtype == torch.uint8:
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
