"""The finite set H of settings from which every move is picked."""

from __future__ import annotations

import collections
import itertools
import math
import random
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Self

from annealtune.annealing.arguments import not_negative

# The set H of Section 4 of the paper.
PAPER_RATES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.09, 0.08, 0.07, 0.06, 0.05)


class Setting(Mapping[str, Any]):
    """One member h of H: option names and their values, immutable and hashable.

    Args:
        options: optimizer options by name, such as ``{"lr": 0.1, "momentum": 0.9}``.

    Raises:
        TypeError: if a value cannot be hashed (use tuples, not lists).
        ValueError: if it is empty, a number is not finite, or ``lr`` is negative.

    Example:
        >>> Setting({"lr": 0.1})["lr"]
        0.1
    """

    __slots__ = ("_hash", "_options")

    def __init__(self, options: Mapping[str, Any]) -> None:
        if not isinstance(options, Mapping):
            raise TypeError(f"Setting(options=...) must map names to values, got {options!r}")
        self._options = {name: _checked(name, value) for name, value in options.items()}
        if not self._options:
            raise ValueError("Setting(options=...) must name at least one option, got none")
        self._hash = hash(frozenset(self._options.items()))

    def __getitem__(self, name: str) -> Any:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._options == dict(other)

    def __repr__(self) -> str:
        return f"Setting({self})"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self._options.items())

    def __reduce__(self) -> tuple[type[Setting], tuple[dict[str, Any]]]:
        return Setting, (dict(self._options),)


class Neighborhood(tuple[Setting, ...]):
    """The set H: a tuple of different settings over the same options.

    Args:
        settings: the members of H, as `Setting` or as plain mappings.
        dropped: members that were taken out because the optimizer refuses them.

    Raises:
        ValueError: if H is empty, holds a setting twice, or its settings name different options.

    Example:
        >>> neighborhood = Neighborhood([{"lr": 0.1}, {"lr": 0.01}])
        >>> neighborhood.pick(random.Random(0))
        Setting(lr=0.01)

    Reference:
        Fischetti and Stringher (2019), Section 3: the neighborhood of the current weights holds
        one optimizer step for each member of H.
    """

    options: tuple[str, ...]
    dropped: tuple[Setting, ...]

    def __new__(
        cls, settings: Iterable[Mapping[str, Any]], *, dropped: Iterable[Setting] = ()
    ) -> Self:
        """Check the settings; a tuple is filled when it is made."""
        self = super().__new__(cls, (s if isinstance(s, Setting) else Setting(s) for s in settings))
        self.dropped = tuple(dropped)
        if not self:
            raise ValueError(
                "Neighborhood(settings=...) must hold at least one setting, got none"
                + (f"; the optimizer refuses all of {list(self.dropped)}" if self.dropped else "")
            )
        self.options = tuple(self[0])
        for setting, times in collections.Counter(self).items():
            if set(setting) != set(self.options):
                raise ValueError(
                    "Neighborhood(settings=...) must name the same options in every setting, got "
                    f"{setting!r} and {self[0]!r}"
                )
            if times > 1:
                raise ValueError(
                    "Neighborhood(settings=...) must hold different settings, "
                    f"got {setting!r} {times} times"
                )
        return self

    def __repr__(self) -> str:
        return f"Neighborhood({list(self)!r})"

    def pick(self, rng: random.Random) -> Setting:
        """Pick a member of H uniformly, with exactly one draw from ``rng``."""
        return self[int(rng.random() * len(self))]


def grid(**options: Iterable[Any]) -> Neighborhood:
    """Build H as the product of the values given for each option, the first option outermost.

    Args:
        options: for each option name the values to choose from.

    Raises:
        TypeError: if the values of an option are not a collection.
        ValueError: as `Neighborhood` does.

    Example:
        >>> len(grid(lr=[0.1, 0.01], momentum=[0.0, 0.9]))
        4
    """
    for name, values in options.items():
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise TypeError(
                f"grid({name}=...) must be a collection of values, got {values!r}; "
                f"write {name}=[{values!r}] for a single one"
            )
    if not options:
        raise ValueError("grid() must name at least one option, such as grid(lr=[0.1, 0.01])")
    products = itertools.product(*options.values())
    return Neighborhood(dict(zip(options, values, strict=True)) for values in products)


def restored(options: Mapping[str, Any]) -> Setting:
    """Return a setting from plain data; the lists into which JSON turns tuples become tuples.

    Example:
        >>> restored({"lr": 0.1, "betas": [0.9, 0.999]})
        Setting(lr=0.1, betas=(0.9, 0.999))
    """
    return Setting({name: _as_tuple(value) for name, value in options.items()})


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value


def _checked(name: str, value: Any) -> Any:
    if not isinstance(value, Hashable):
        raise TypeError(
            f"Setting({name}=...) must be a hashable value, got {value!r}; use a tuple for a list"
        )
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int | float) and not math.isfinite(number):
            raise ValueError(f"Setting({name}=...) must be finite, got {value!r}")
    if name == "lr":
        not_negative("Setting(lr=...)", value)
    return value
