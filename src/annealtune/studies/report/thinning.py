"""Which records of a long run a page shows."""

from collections.abc import Sequence
from typing import TypeVar

# Records of a run that a page shows.
MOST_SHOWN = 1000

_Record = TypeVar("_Record")


def shown_records(records: Sequence[_Record]) -> Sequence[_Record]:
    """Return those records of a long run that a page shows: a page does not grow with the epochs.

    All of a thousand epochs; of more every second, fourth, eighth and so on, so that runs of
    different lengths have epochs in common, besides the first and the last one.

    Example:
        >>> shown_records(range(1, 3))
        range(1, 3)
        >>> found = shown_records(range(1, 2502))
        >>> found[:3], found[-2:], len(found)
        ((1, 4, 8), (2500, 2501), 627)
    """
    every = 1
    while len(records) > MOST_SHOWN * every:
        every *= 2
    if every == 1:
        return records
    last = records[-1:] if len(records) % every else ()
    return (*records[:1], *records[every - 1 :: every], *last)
