"""The file of finished runs: one JSON line each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.quality.records import RecordsError, append

__all__ = ["Key", "RecordsError", "append", "by_key", "key_of", "read"]

Record = dict[str, Any]


class Key(NamedTuple):
    """What tells runs apart."""

    task: str
    seed: int
    base: str
    method: str
    variant: str = ""
    length_factor: float = 1.0


def key_of(record: Record) -> Key:
    return Key(*(record[name] for name in Key._fields))


def read(path: Path) -> list[Record]:
    """Return the records of a file, none if there is no file.

    What follows the last line break was cut off while it was written, and is left out.

    Raises:
        RecordsError: if another line is not a record.
    """
    if not path.exists():
        return []
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
            key_of(records[-1])
        except (ValueError, TypeError, KeyError) as error:
            raise RecordsError(f"{path}, line {number} is no record of a run ({error})") from error
    return records


def by_key(records: Iterable[Record]) -> dict[Key, Record]:
    """Return the records by key; of runs that were made again the last."""
    return {key_of(record): record for record in records}
