"""The file of finished runs: one JSON line each, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class RecordsError(ValueError):
    """A records file that is damaged in a way no interrupted run explains."""


def read(path: Path) -> list[Record]:
    """Return the records of a file, none if there is no file.

    What follows the last line break was cut off while it was written, and is left out.

    Raises:
        RecordsError: if another line is not a record.
    """
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            key_of(record)
        except (ValueError, TypeError, KeyError) as error:
            raise RecordsError(
                f"{path}, line {number} is no record of a run ({error}); mend or remove the line"
            ) from error
        records.append(record)
    return records


def append(path: Path, record: Record) -> None:
    """Add a record, after removing what an interrupted run left of its last line."""
    line = (json.dumps(record, allow_nan=False) + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        _remove_torn_end(file)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _remove_torn_end(file: Any) -> None:
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)


def key_of(record: Record) -> tuple[Any, ...]:
    """Return what tells runs apart, as `Spec.key` does."""
    is_search = record["is_search"]
    lr = record["options"].get("lr") if is_search else None
    names = ("task", "method", "seed", "variant", "scale")
    return (*(record[name] for name in names), is_search, lr)


def latest(records: Iterable[Record]) -> dict[tuple[Any, ...], Record]:
    """Return the records by key; of runs that were made again the last."""
    return {key_of(record): record for record in records}
