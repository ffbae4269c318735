"""The file of finished runs: one JSON line each."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Record = dict[str, Any]


class RecordsError(Exception):
    """A file of records that cannot be read."""


class Key(NamedTuple):
    """What tells runs apart."""

    task: str
    seed: int
    base: str
    method: str
    variant: str = ""
    length_factor: float = 1.0


Records = Mapping[Key, Record]


def provenance() -> Record:
    """Return what a run was made with: the commit, torch, the CPU, the number of threads."""
    import torch

    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    return {
        "commit": described.stdout.strip() or None,
        "torch": torch.__version__,
        "cpu": cpu_model(),
        "threads": torch.get_num_threads(),
    }


def cpu_model() -> str:
    """Return the name of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def key_of(record: Record) -> Key:
    return Key(*(record[name] for name in Key._fields))


def append(path: Path, record: Record) -> None:
    """Add one record, in one write, so that several programs may share a file.

    It takes the place of a line that was cut off while it was written.
    """
    line = json.dumps(record, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.truncate(path.read_bytes().rfind(b"\n") + 1)
        file.write(line.encode())


def read(path: Path) -> dict[Key, Record]:
    """Return the records of a file by key, none if there is no file.

    What follows the last line break was cut off while it was written, and is left out. Of runs that
    were made again the last counts.

    Raises:
        RecordsError: if another line is not a record.
    """
    if not path.exists():
        return {}
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    return dict(_parsed(lines, path))


def _parsed(lines: Iterable[str], path: Path) -> Iterable[tuple[Key, Record]]:
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            yield key_of(record), record
        except (ValueError, TypeError, KeyError) as error:
            raise RecordsError(f"{path}, line {number} is no record of a run ({error})") from error
