"""A data set in memory, a fixed part of it, the validation split, and random numbers for both."""

import hashlib
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
import torch
from numpy.random import SeedSequence
from numpy.typing import NDArray
from torch import Tensor

from annealtune.errors import ConfigError
from annealtune.training.task import InputType, Kind, Task

_INPUT_TYPES: dict[torch.dtype, InputType] = {
    torch.uint8: "uint8",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int64: "int64",
}


class Purpose(IntEnum):
    """What random numbers are for; two purposes never share a stream. Never renumber."""

    ORDER = 0
    SAMPLE = 2
    SUBSET = 3
    SPLIT = 4


def generator(seed: int, purpose: Purpose, *counters: int) -> torch.Generator:
    """Return a fresh CPU generator that depends on nothing but the arguments.

    The counters are numbers such as the epoch and the position in it. A generator made anew for
    each minibatch needs no state, which lets a run resume anywhere with the very same minibatches.

    Example:
        >>> first, again = (generator(0, Purpose.ORDER, 7) for _ in range(2))
        >>> first.initial_seed() == again.initial_seed()
        True
    """
    (word,) = SeedSequence((seed, int(purpose), *counters)).generate_state(1, "uint64")
    return torch.Generator().manual_seed(int(word))


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and targets of a task, all in memory.

    Args:
        name: For messages and reports.
        train_inputs: ``uint8`` images of shape (images, channels, height, width), ``float32``
            numbers of any shape (samples, ...), ``float64`` ones if they have a mean, or ``int64``
            tokens of shape (samples, length).
        train_targets: For classification ``int64``, one class number per sample; for regression
            ``float32`` of shape (samples, ...); for tokens ``int64``, of the inputs' shape.
        test_inputs: As the training inputs, of the same shape.
        test_targets: As the training targets.
        classes: The name of each class, for classification.
        mean: Of each channel or feature, in units of ``input / scale``. Without it the inputs are
            used as they are; images must have it.
        std: Standard deviation of each, in the same units.
        scale: The largest pixel value; 1 for numbers.
        kind: ``"classification"``, ``"regression"`` or ``"tokens"``.
        vocabulary: How many different tokens there are, where the inputs are tokens.

    Attributes:
        task: What a model must know of it.

    Raises:
        TypeError: For tensors of another dtype.
        ValueError: For shapes or labels that do not fit together.

    Example:
        >>> images, labels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
        >>> data = Dataset("blank", images, labels, images, labels, ("no", "yes"), (0.5,), (0.5,))
        >>> data.task.told()
        {'input_shape': (1, 8, 8), 'channels': 1, 'image_size': (8, 8), 'classes': 2}
    """

    name: str
    train_inputs: Tensor = field(repr=False)
    train_targets: Tensor = field(repr=False)
    test_inputs: Tensor = field(repr=False)
    test_targets: Tensor = field(repr=False)
    classes: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    scale: float = 255.0
    kind: Kind = "classification"
    vocabulary: int | None = None
    task: Task = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind == "classification":
            differ = len(self.classes) == len(set(self.classes)) > 1
            _require(differ, "classes", "two or more different names", self.classes)
        for part in ("train", "test"):
            self._check_inputs(part)
            self._check_targets(part)
        for what in ("inputs", "targets"):
            train, test = (getattr(self, f"{part}_{what}") for part in ("train", "test"))
            _require(
                (train.shape[1:], train.dtype) == (test.shape[1:], test.dtype),
                f"test_{what}",
                f"of the shape and dtype of training {what}, {_shown(train)}",
                _shown(test),
            )
        object.__setattr__(self, "task", self._describe())

    def _check_inputs(self, part: str) -> None:
        argument, inputs = f"{part}_inputs", getattr(self, f"{part}_inputs")
        _require(inputs.dtype in _INPUT_TYPES, argument, "uint8, float or int64", inputs.dtype)
        is_image = inputs.dtype == torch.uint8
        _require(
            inputs.numel() > 0 and (inputs.ndim == 4 if is_image else inputs.ndim > 1),
            argument,
            "of shape (samples, ...), uint8 images of (images, channels, height, width), none of "
            "them 0",
            tuple(inputs.shape),
        )
        if inputs.dtype == torch.int64:
            _require(
                inputs.ndim == 2 and self.vocabulary is not None,
                argument,
                "float32 if they are no tokens, else of shape (samples, length), with a vocabulary",
                f"{tuple(inputs.shape)} and vocabulary={self.vocabulary}",
            )
            _check_range(argument, inputs, self.vocabulary or 0)
        else:
            _require(self.kind != "tokens", argument, "int64 for tokens", inputs.dtype)
        _check_finite(argument, inputs)

    def _check_targets(self, part: str) -> None:
        argument, targets = f"{part}_targets", getattr(self, f"{part}_targets")
        inputs = getattr(self, f"{part}_inputs")
        wanted = torch.float32 if self.kind == "regression" else torch.int64
        _require(targets.dtype == wanted, argument, f"{wanted} for {self.kind}", targets.dtype)
        shape = tuple(targets.shape)
        if self.kind == "regression":
            fits = targets.ndim > 1 and len(targets) == len(inputs) and targets.numel() > 0
            _require(fits, argument, f"numbers for each sample, ({len(inputs)}, ...)", shape)
            _check_finite(argument, targets)
            return
        expected = inputs.shape[:1] if self.kind == "classification" else inputs.shape
        _require(
            targets.shape == expected,
            argument,
            f"one target for each sample, or each token, of shape {tuple(expected)}",
            shape,
        )
        is_class = self.kind == "classification"
        _check_range(argument, targets, len(self.classes) if is_class else self.vocabulary or 0)

    def _describe(self) -> Task:
        if self.kind == "classification":
            output_shape: tuple[int, ...] = (len(self.classes),)
        elif self.kind == "tokens":
            output_shape = (*self.train_inputs.shape[1:], self.vocabulary or 0)
        else:
            output_shape = tuple(self.train_targets.shape[1:])
        return Task(
            kind=self.kind,
            input_shape=tuple(self.train_inputs.shape[1:]),
            input_type=_INPUT_TYPES[self.train_inputs.dtype],
            output_shape=output_shape,
            classes=self.classes,
            vocabulary=self.vocabulary,
            mean=self.mean,
            std=self.std,
            scale=self.scale,
            digest=self._digest(),
        )

    def _digest(self) -> str:
        """Return a digest of all samples, with their types and shapes."""
        found = hashlib.blake2b(digest_size=16)
        parts = (self.train_inputs, self.train_targets, self.test_inputs, self.test_targets)
        for part in parts:
            found.update(f"{part.dtype} {tuple(part.shape)}".encode())
            found.update(part.contiguous().view(-1).numpy().view(np.uint8).data)
        return found.hexdigest()


def _require(is_right: bool, argument: str, rule: str, got: object) -> None:
    if not is_right:
        kind = TypeError if isinstance(got, torch.dtype) else ValueError
        raise kind(f"Dataset({argument}=...) must be {rule}, got {got}")


def _shown(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape[1:])} of {tensor.dtype}"


def _check_range(argument: str, values: Tensor, count: int) -> None:
    broken = ((values < 0) | (values >= count)).nonzero()
    if len(broken) > 0:
        raise ValueError(
            f"Dataset({argument}=...) must be in 0..{count - 1}, got "
            f"{int(values[tuple(broken[0])])}, first in sample {int(broken[0, 0])}; whole numbers "
            "are read as classes or tokens, others must be floats"
        )


def _check_finite(argument: str, values: Tensor) -> None:
    if values.is_floating_point() and not bool(values.isfinite().all()):
        broken = (~values.isfinite()).flatten(1).any(1).nonzero()
        raise ValueError(
            f"Dataset({argument}=...) must be finite, got NaN or infinity in {len(broken)} of "
            f"{len(values)} samples, first in sample {int(broken[0])}"
        )


def subset(dataset: Dataset, train_size: int, seed: int) -> Dataset:
    """Return the data set with a fixed part of its training samples and all test samples.

    The part is the beginning of one random permutation, not stratified, so a smaller part of the
    same seed lies within a larger one.

    Raises:
        ConfigError: If there are fewer samples than that.
    """
    available = len(dataset.train_targets)
    if not 1 <= train_size <= available:
        raise ConfigError(
            f"train_size = {train_size}: must be in 1..{available}, the training samples of "
            f"{dataset.name}"
        )
    order = torch.randperm(available, generator=generator(seed, Purpose.SUBSET))[:train_size]
    return replace(
        dataset,
        train_inputs=dataset.train_inputs[order],
        train_targets=dataset.train_targets[order],
    )


def split(count: int, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Divide ``count`` training samples by one random permutation, not stratified.

    Returns:
        The numbers of the training samples and of the fraction set apart, each in rising order.

    Raises:
        ConfigError: If one of the two sets would be empty.

    Example:
        >>> training, validation = split(10, 0.2, seed=0)
        >>> len(training), len(validation)
        (8, 2)
    """
    held_out = round(count * fraction)
    if held_out in (0, count):
        raise ConfigError(
            f"validation_fraction = {fraction}: {held_out} of {count} samples set apart leave one "
            "of the two sets empty"
        )
    order = torch.randperm(count, generator=generator(seed, Purpose.SPLIT))
    return order[held_out:].sort().values, order[:held_out].sort().values


def channel_statistics(
    images: NDArray[np.uint8],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each channel, pixels divided by 255.

    Args:
        images: Of shape (images, channels, height, width).

    Example:
        >>> channel_statistics(np.array([[[[0, 255]]]], dtype=np.uint8))
        ((0.5,), (0.5,))
    """
    counts = [np.bincount(images[:, c].ravel(), minlength=256) for c in range(images.shape[1])]
    values = np.arange(256) / 255
    mean = [float(np.average(values, weights=count)) for count in counts]
    variance = [
        float(np.average((values - center) ** 2, weights=count))
        for center, count in zip(mean, counts, strict=True)
    ]
    # A channel without any contrast is only centered.
    return tuple(mean), tuple(v**0.5 if v > 0 else 1.0 for v in variance)
