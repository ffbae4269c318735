"""One part of a user's own data, training or test, read into memory as tensors."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from annealtune.training.factories import contained, in_one_line

_PAIR = ("inputs", "targets")


class Part(NamedTuple):
    """Inputs and targets as they were given, and the names of the classes if the data has them."""

    inputs: Tensor
    targets: Tensor
    class_names: tuple[str, ...] = ()


def read_part(what: str, given: Any, length: int | None) -> Part:
    """Return inputs and targets of one part, as uint8, int64 or float32.

    Args:
        what: its name, for messages.
        given: a map-style torch Dataset, a tuple (inputs, targets), or one long text of tokens.
        length: how many tokens a window of such a text has.

    Raises:
        TypeError: for anything else.
        ValueError: for samples that do not fit together, or do not fit into memory.
    """
    if isinstance(given, DataLoader):
        raise TypeError(f"{what} must be a Dataset, got a DataLoader; return its .dataset")
    if isinstance(given, IterableDataset):
        raise TypeError(
            f"{what} must be a Dataset with a length, or tensors, got {type(given).__name__}, an "
            "IterableDataset; read it into tensors in the factory"
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
    whole = tokens.long()
    return Part(
        whole[: count * length].view(count, length),
        whole[1 : count * length + 1].view(count, length),
    )


def _read(what: str, samples: Any) -> Part:
    """Read a torch Dataset into memory, sample by sample."""
    count = len(samples)
    if count == 0:
        raise ValueError(f"{what} must not be empty, got a {type(samples).__name__} of length 0")
    inputs: list[Tensor] = []
    targets: list[Tensor] = []
    for number in range(count):
        try:
            with contained():
                sample = samples[number]
        except Exception as error:  # the data set is the user's: whatever it raises, say where
            raise ValueError(f"{what}[{number}] failed: {in_one_line(error)}") from error
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise TypeError(
                f"{what}[{number}] must be a pair (input, target), got {type(sample).__name__}"
            )
        pair = [_tensor(f"{what}[{number}] {n}", v) for n, v in zip(_PAIR, sample, strict=True)]
        if number == 0:
            _check_size(what, count, pair)
        for kind, tensor, found in zip(_PAIR, pair, (inputs, targets), strict=True):
            if found and (tensor.shape, tensor.dtype) != (found[0].shape, found[0].dtype):
                raise ValueError(
                    f"{what}[{number}]: all {kind} must have one shape and dtype, got "
                    f"{tuple(tensor.shape)} of {tensor.dtype}, the first is "
                    f"{tuple(found[0].shape)} of {found[0].dtype}"
                )
            found.append(tensor)
    names = getattr(samples, "classes", ())
    return Part(torch.stack(inputs), torch.stack(targets), tuple(names) if are_names(names) else ())


def _check_size(what: str, count: int, pair: Sequence[Tensor]) -> None:
    size = count * sum(tensor.numel() * tensor.element_size() for tensor in pair)
    room = memory()
    if size > room:
        raise ValueError(
            f"{what} must fit into memory: {count} samples need about {size / 2**30:.1f} GiB, this "
            f"machine has {room / 2**30:.1f}; return a smaller part, or uint8 instead of floats"
        )


def memory() -> int:
    """Return how many bytes of memory this machine has; 64 GiB where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 64 * 2**30


def _tensor(what: str, value: Any) -> Tensor:
    """Return numbers of any kind as a tensor of uint8, int64 or float32."""
    if isinstance(value, Tensor):
        if value.is_nested or value.is_meta:
            raise TypeError(
                f"{what} must be numbers in rows of one length, got a "
                f"{'nested tensor' if value.is_nested else 'tensor on meta, without values'}"
            )
        tensor = value.detach().cpu()
    else:
        tensor = torch.from_numpy(_array(what, value))
    if tensor.is_complex() or tensor.is_quantized or tensor.layout is not torch.strided:
        raise TypeError(f"{what} must be plain real numbers, got {tensor.dtype}, {tensor.layout}")
    if tensor.dtype == torch.uint8:
        return tensor
    return tensor.float() if tensor.is_floating_point() else tensor.long()


def _array(what: str, value: Any) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise TypeError(f"{what} must be numbers in rows of one length: {error}") from None
    if np.ma.is_masked(value):
        raise TypeError(f"{what} must have no masked values; fill or leave them out in the factory")
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{what} must be numbers, got {type(value).__name__} of {array.dtype}; turn text and "
            "categories into numbers in the factory"
        )
    if hasattr(value, "getbands"):  # a PIL picture: (height, width) or (height, width, channels)
        array = array.reshape(*array.shape[:2], -1).transpose(2, 0, 1)
    if not array.dtype.isnative:  # torch knows the byte order of this machine alone
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "u" and array.itemsize > 1:
        array = array.astype(np.int64)
    return np.array(array)  # a copy that may be written to, in the order of its axes


def are_names(value: Any) -> bool:
    """Tell whether something is a list of names."""
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
