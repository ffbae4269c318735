"""A data set in memory, a fixed part of it, and the validation split."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from annealtune.errors import ConfigError, DataError
from annealtune.training.task import KINDS, InputType, Kind, Task

from .randomness import Purpose, generator

_INPUT_TYPES: dict[torch.dtype, InputType] = {
    torch.uint8: "uint8",
    torch.float32: "float32",
    torch.int64: "int64",
}
_AS_CLASSES = (
    "whole-number targets are read as classes; numbers to predict must be floats, or have the kind "
    "'regression'"
)
_AS_TOKENS = "whole-number inputs are read as tokens; make other numbers floats with .float()"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and targets of a task, all in memory.

    Args:
        name: For messages and reports.
        train_inputs: ``uint8`` images of shape (images, channels, height, width), ``float32``
            numbers of any shape (samples, ...), or ``int64`` tokens of shape (samples, length).
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
        ValueError: For shapes, labels or statistics that do not fit together.

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
        if self.kind not in KINDS:
            raise ValueError(
                f"Dataset(kind=...) must be one of {', '.join(KINDS)}, got {self.kind}"
            )
        if self.kind == "classification" and (
            len(self.classes) < 2 or len(set(self.classes)) < len(self.classes)
        ):
            raise ValueError(
                f"Dataset(classes=...) must be two or more different names, got {self.classes}"
            )
        for part in ("train", "test"):
            self._check_inputs(part)
            self._check_targets(part)
        for what in ("inputs", "targets"):
            shapes = [
                tuple(getattr(self, f"{part}_{what}").shape[1:]) for part in ("train", "test")
            ]
            if shapes[0] != shapes[1]:
                raise ValueError(
                    f"Dataset(...): training and test {what} must have the same shape, got "
                    f"{shapes[0]} and {shapes[1]}"
                )
        if self.train_inputs.dtype != self.test_inputs.dtype:
            raise TypeError(
                "Dataset(...): training and test inputs must have the same dtype, got "
                f"{self.train_inputs.dtype} and {self.test_inputs.dtype}"
            )
        self._check_statistics()
        object.__setattr__(self, "task", self._describe())

    def _check_inputs(self, part: str) -> None:
        argument, inputs = f"{part}_inputs", getattr(self, f"{part}_inputs")
        if inputs.dtype not in _INPUT_TYPES:
            raise TypeError(
                f"Dataset({argument}=...) must be uint8, float32 or int64, got {inputs.dtype}"
            )
        if inputs.dtype == torch.uint8 and inputs.ndim != 4:
            raise ValueError(
                f"Dataset({argument}=...): uint8 images must have the shape (images, channels, "
                f"height, width), got {tuple(inputs.shape)}"
            )
        if inputs.ndim < 2 or inputs.numel() == 0:
            raise ValueError(
                f"Dataset({argument}=...) must have the shape (samples, ...), none of them 0, got "
                f"{tuple(inputs.shape)}"
            )
        if inputs.dtype == torch.int64:
            if inputs.ndim != 2 or self.vocabulary is None:
                raise ValueError(
                    f"Dataset({argument}=...): int64 inputs are tokens: they must have the shape "
                    f"(samples, length) and a vocabulary, got {tuple(inputs.shape)} and vocabulary="
                    f"{self.vocabulary}; numbers that are no tokens must be float32"
                )
            _check_range(argument, inputs, self.vocabulary, _AS_TOKENS)
        elif self.kind == "tokens":
            raise TypeError(f"Dataset({argument}=...): tokens must be int64, got {inputs.dtype}")
        _check_finite(argument, inputs)

    def _check_targets(self, part: str) -> None:
        argument, targets = f"{part}_targets", getattr(self, f"{part}_targets")
        inputs = getattr(self, f"{part}_inputs")
        wanted = torch.float32 if self.kind == "regression" else torch.int64
        if targets.dtype != wanted:
            raise TypeError(
                f"Dataset({argument}=...) must be {str(wanted).removeprefix('torch.')} for "
                f"{self.kind}, got {targets.dtype}"
            )
        if self.kind == "regression":
            if targets.ndim < 2 or len(targets) != len(inputs) or targets.numel() == 0:
                raise ValueError(
                    f"Dataset({argument}=...) must have the shape ({len(inputs)}, ...), numbers "
                    f"for each sample, got {tuple(targets.shape)}"
                )
            _check_finite(argument, targets)
            return
        expected = inputs.shape[:1] if self.kind == "classification" else inputs.shape
        if targets.shape != expected:
            what = "one label" if self.kind == "classification" else "as many tokens as go in"
            raise ValueError(
                f"Dataset({argument}=...) must hold {what} for each of the {len(inputs)} samples, "
                f"the shape {tuple(expected)}, got {tuple(targets.shape)}"
            )
        if self.kind == "classification":
            _check_range(argument, targets, len(self.classes), _AS_CLASSES)
        else:
            _check_range(argument, targets, self.vocabulary or 0, _AS_TOKENS)

    def _check_statistics(self) -> None:
        channels = self.train_inputs.shape[1]
        needed = self.train_inputs.dtype == torch.uint8
        for argument, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != channels and (values or needed or self.mean):
                raise ValueError(
                    f"Dataset({argument}=...) must have one number for each of the "
                    f"{channels} channels, got {values}"
                )
        if self.mean and self.train_inputs.dtype == torch.int64:
            raise ValueError(f"Dataset(mean=...): tokens have no mean, got {self.mean}")
        if not all(0 < number < math.inf for number in (*self.std, self.scale)):
            raise ValueError(
                "Dataset(std=..., scale=...) must be positive and finite, got "
                f"{self.std} and {self.scale}"
            )

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
        )


def from_files(name: str, **arguments: Any) -> Dataset:
    """Return a data set that was read from files; takes what `Dataset` takes.

    Raises:
        DataError: If the files hold something that is no such data set.
    """
    try:
        return Dataset(name=name, **arguments)
    except (TypeError, ValueError) as error:
        raise DataError(f"data = {name!r}: the files do not hold it: {error}") from error


def _check_range(argument: str, values: Tensor, count: int, reading: str) -> None:
    """Refuse whole numbers out of range; of negative ones say how they are read."""
    broken = ((values < 0) | (values >= count)).nonzero()
    if len(broken) == 0:
        return
    value = int(values[tuple(broken[0])])
    raise ValueError(
        f"Dataset({argument}=...) must be in 0..{count - 1}, got {value}, first in sample "
        f"{int(broken[0, 0])}{f'; {reading}' if value < 0 else ''}"
    )


def _check_finite(argument: str, values: Tensor) -> None:
    if not values.is_floating_point() or bool(values.isfinite().all()):
        return
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


def split(
    count: int, fraction: float, seed: int, purpose: Purpose = Purpose.SPLIT
) -> tuple[Tensor, Tensor]:
    """Divide ``count`` training samples by one random permutation, not stratified.

    Returns:
        The numbers of the training samples and of the fraction set apart, each in rising order.

    Raises:
        ValueError: If the fraction is not in [0, 1), or leaves one of the two sets empty although
            it is not 0.

    Example:
        >>> training, validation = split(10, 0.2, seed=0)
        >>> len(training), len(validation)
        (8, 2)
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"split(fraction=...) must be in [0, 1), got {fraction}")
    held_out = round(count * fraction)
    if count < 1 or held_out == count or (fraction > 0 and held_out == 0):
        raise ValueError(
            f"split(count={count}, fraction={fraction}): {held_out} of {count} samples set apart "
            "leave one of the two sets empty"
        )
    order = torch.randperm(count, generator=generator(seed, purpose))
    return order[held_out:].sort().values, order[:held_out].sort().values
