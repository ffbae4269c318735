"""Kinds of values that the keys of a config take: numbers with their bounds, lists, tables."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from annealtune.annealing import log_range

MOST_VALUES = 1000
T = TypeVar("T")


class Options(BaseModel):
    """Common to all tables of a config: immutable, no unknown key."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _listed(value: Any) -> Any:
    """Take a single value as a list of one, and a table as values in equal ratios."""
    if isinstance(value, Mapping):
        return _in_equal_ratios(value)
    return value if isinstance(value, list | tuple) else (value,)


def _in_equal_ratios(table: Mapping[str, Any]) -> tuple[float, ...]:
    rule = "must be a value, a list of values or { low = 1e-4, high = 1.0, count = 9 }"
    if table.keys() != {"low", "high", "count"}:
        raise ValueError(f"{rule}, got the keys {', '.join(map(str, table)) or 'none'}")
    if isinstance(table["count"], int) and table["count"] > MOST_VALUES:
        raise ValueError(f"{rule}, count at most {MOST_VALUES}, got {table['count']}")
    try:
        return log_range(table["low"], table["high"], table["count"])
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{rule}: {error}") from None


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_pair(value: Any) -> bool:
    """Tell whether a value has the form of two betas.

    Example:
        >>> _is_pair([0.9, 0.999]), _is_pair([0.9]), _is_pair([[0.9, 0.999]])
        (True, False, False)
    """
    return _is_list(value) and len(value) == 2 and not any(map(_is_list, value))


def _pair(value: Any) -> Any:
    if not _is_pair(value):
        raise ValueError(f"must be a pair such as [0.9, 0.999], got {value!r}")
    return value


def _pairs(value: Any) -> Any:
    """Take a single pair as a list of one."""
    if _is_pair(value):
        return (value,)
    if not _is_list(value) or not all(map(_is_pair, value)):
        raise ValueError(f"must be pairs such as [[0.9, 0.999]], got {value!r}")
    return value


def _tables(value: Any) -> Any:
    """Take a single table as a list of one."""
    if not _is_list(value) and not isinstance(value, Mapping):
        raise ValueError(f"must be tables such as [{{ lr = 0.1 }}, {{ lr = 0.01 }}], got {value!r}")
    return value if _is_list(value) else (value,)


def begins(name: str, start: str) -> bool:
    """Tell whether a dotted name lies within a part of the model.

    Example:
        >>> begins("features.1.weight", "features.1"), begins("features.10.weight", "features.1")
        (True, False)
    """
    return name == start or name.startswith(f"{start}.")


def _apart(value: dict[str, float]) -> dict[str, float]:
    """Refuse parts of the model that lie within each other."""
    for one, other in itertools.permutations(value, 2):
        if begins(other, one):
            raise ValueError(
                f"must name different parts of the model, got {one!r} and {other!r}, which lies "
                "within it"
            )
    return value


Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Number = Annotated[float, Field(strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
Factor = Annotated[float, Field(gt=0, lt=1, strict=True)]
BelowOne = Annotated[float, Field(ge=0, lt=1, strict=True)]
Betas = tuple[BelowOne, BelowOne]
Pair = Annotated[Betas, BeforeValidator(_pair)]
Pairs = Annotated[tuple[Betas, ...], BeforeValidator(_pairs)]
Listed = Annotated[tuple[T, ...], BeforeValidator(_listed)]
Tables = Annotated[tuple[T, ...], BeforeValidator(_tables)]
Scales = Annotated[
    Annotated[dict[str, NotNegative], AfterValidator(_apart)] | None,
    Field(description="factors of the rate by the start of a parameter's name: { features = 0.5 }"),
]
