"""What there is to learn: what goes into a model, what must come out, and how that is judged."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Kind = Literal["classification", "regression", "tokens"]
InputType = Literal["uint8", "float32", "float64", "int64"]


@dataclasses.dataclass(frozen=True)
class Task:
    """All that a model, its loss and its users must know of the data; plain numbers and names.

    Attributes:
        kind: ``"classification"``: one class for each sample, judged by cross-entropy and accuracy;
            ``"regression"``: numbers, judged by the mean squared error alone; ``"tokens"``: one
            token for each token that goes in, judged by cross-entropy and accuracy per token.
        input_shape: of one sample, as the data holds it.
        input_type: ``"uint8"`` pixels, ``"float32"`` or ``"float64"`` numbers (the latter are
            normalised before they are rounded), or ``"int64"`` tokens.
        output_shape: of what the model gives for one sample: one score for each class, one number
            for each target, or one score for each position and entry of the vocabulary.
        classes: the name of each class; empty unless the kind is classification.
        vocabulary: how many different tokens there are, where tokens go in.
        mean: of each channel or feature, in units of ``input / scale``; empty if the inputs are
            used as they are.
        std: standard deviation of each, in the same units.
        scale: the largest pixel value; 1 for numbers.
        digest: of all samples, by which the data of a run is known again; empty if it is not known.

    Example:
        >>> task = Task.of_images(channels=1, image_size=(8, 8), classes=10)
        >>> task.told()
        {'input_shape': (1, 8, 8), 'channels': 1, 'image_size': (8, 8), 'classes': 10}
    """

    kind: Kind
    input_shape: tuple[int, ...]
    input_type: InputType
    output_shape: tuple[int, ...]
    classes: tuple[str, ...] = ()
    vocabulary: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    scale: float = 1.0
    digest: str = ""

    @classmethod
    def of_images(cls, *, channels: int, image_size: tuple[int, int], classes: int) -> Task:
        """Return the task of telling classes of images apart, pixels used as they are."""
        names = tuple(map(str, range(classes)))
        shape = (channels, *image_size)
        return cls("classification", shape, "uint8", (classes,), names)

    @property
    def is_image(self) -> bool:
        """Whether a sample is an image: (channels, height, width)."""
        return len(self.input_shape) == 3 and self.input_type != "int64"

    @property
    def has_accuracy(self) -> bool:
        """Whether an output can be right or wrong, and not just far away."""
        return self.kind != "regression"

    @property
    def summary(self) -> str:
        """Kind and size in a few words: ``"classification, 10 classes"``."""
        words: list[str] = [self.kind]
        if self.kind == "classification":
            words.append(f"{len(self.classes)} classes")
        elif self.kind == "regression":
            outputs = math.prod(self.output_shape)
            words.append(f"{outputs} output{'' if outputs == 1 else 's'}")
        if self.vocabulary is not None:
            words.append(f"vocabulary {self.vocabulary}")
        return ", ".join(words)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of what the model is given: tokens stay whole numbers."""
        return torch.int64 if self.input_type == "int64" else torch.float32

    def told(self, input_shape: tuple[int, ...] | None = None) -> dict[str, Any]:
        """Return what a model factory may ask for, by keyword.

        Args:
            input_shape: of one sample after padding, if that is another.
        """
        shape = input_shape or self.input_shape
        told: dict[str, Any] = {"input_shape": shape}
        if self.is_image:
            told |= {"channels": shape[0], "image_size": shape[1:]}
        elif self.vocabulary is not None:
            told |= {"vocabulary": self.vocabulary, "length": shape[-1]}
        elif len(shape) == 1:
            told["features"] = shape[0]
        if self.kind == "classification":
            told["classes"] = len(self.classes)
        elif self.kind == "regression":
            told |= {"outputs": math.prod(self.output_shape), "output_shape": self.output_shape}
        return told

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Tell whether a model's output for some samples has the right shape."""
        if self.output_shape == (1,) and self.kind == "regression" and len(shape) == 1:
            return True  # one number a sample, with or without an axis of its own
        return shape[1:] == self.output_shape

    def arranged(self, outputs: Tensor) -> Tensor:
        """Return a model's outputs as losses want them: (samples, classes, ...), or as targets."""
        if self.kind == "tokens":
            return outputs.movedim(-1, 1)
        if self.kind == "regression" and outputs.ndim == 1:
            return outputs[:, None]
        return outputs

    def loss(
        self, outputs: Tensor, targets: Tensor, *, reduction: Literal["mean", "sum"] = "mean"
    ) -> Tensor:
        """Return the loss of arranged outputs: cross-entropy, or the squared error."""
        if self.kind == "regression":
            return F.mse_loss(outputs, targets, reduction=reduction)
        return F.cross_entropy(outputs, targets, reduction=reduction)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for a file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Task:
        """Read what `to_dict` gave, also after JSON made lists of the tuples.

        Raises:
            TypeError: if keys are missing or unknown.
        """
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in content.items()
        }
        return cls(**values)
