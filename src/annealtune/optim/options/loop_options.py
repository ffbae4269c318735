"""Options of the training loop that H may set beside those of the optimizer.

Label smoothing, the dropout rate, the strength of an augmentation, the norm that gradients are
clipped to: whatever the loop can be told between two minibatches. Two classes cover most of it,
`Attribute` and `Value`; anything else with ``read`` and ``write`` does as well.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class LoopOption(Protocol):
    """Something that can be read and written between two minibatches."""

    def read(self) -> Any:
        """Return the present value."""

    def write(self, value: Any) -> None:
        """Make this the value of the next forward."""


class Value:
    """A value that the loop looks up itself.

    Args:
        value: what it holds before the first step.

    Example:
        >>> clip = Value(1.0)
        >>> clip.write(0.5)
        >>> clip.value
        0.5
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def read(self) -> Any:
        """Return the present value."""
        return self.value

    def write(self, value: Any) -> None:
        """Change it."""
        self.value = value

    def __repr__(self) -> str:
        return f"Value({self.value!r})"


class Attribute:
    """An attribute of one or more objects, such as ``p`` of all dropout layers.

    Args:
        name: of the attribute.
        owners: the objects that have it, all with the same value.

    Raises:
        TypeError: if there is no owner.
        AttributeError: if an owner has no such attribute.
        ValueError: if it is not the same in all of them: a rejection puts one value back.

    Example:
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1), nn.Dropout(0.1))
        >>> dropout = Attribute("p", *(m for m in model if isinstance(m, nn.Dropout)))
        >>> dropout.write(0.3)
        >>> [m.p for m in model if isinstance(m, nn.Dropout)]
        [0.3, 0.3]
    """

    def __init__(self, name: str, *owners: Any) -> None:
        if not owners:
            raise TypeError(f"Attribute({name!r}, ...) must be given an object that has it")
        for owner in owners:
            if not hasattr(owner, name):
                raise AttributeError(
                    f"Attribute({name!r}, ...) must be an attribute of every object, got a "
                    f"{type(owner).__name__}, which has none of that name"
                )
        values = [getattr(owner, name) for owner in owners]
        for value in values:
            if value != values[0]:
                raise ValueError(
                    f"Attribute({name!r}, ...) must be the same in every object before the first "
                    f"step, for a rejection puts one value back, got {values[0]!r} and {value!r}; "
                    "set them alike first"
                )
        self._name = name
        self._owners = owners

    def read(self) -> Any:
        """Return the attribute, which all objects share."""
        return getattr(self._owners[0], self._name)

    def write(self, value: Any) -> None:
        """Set the attribute of every object."""
        for owner in self._owners:
            setattr(owner, self._name, value)

    def __repr__(self) -> str:
        return f"Attribute({self._name!r}, {len(self._owners)} objects)"
