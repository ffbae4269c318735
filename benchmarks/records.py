"""The file of finished runs: one JSON line each."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from annealtune.training.provenance import cpu_name

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


def key_of(record: Record, kind: Any = Key) -> Any:
    """Return what tells a run apart, as a `Key` or another named tuple."""
    return kind(*(record[name] for name in kind._fields))


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


def read(path: Path, kind: Any = Key) -> dict[Any, Record]:
    """Return the records of a file by key, none if there is no file.

    What follows the last line break was cut off while it was written, and is left out. Of runs that
    were made again the last counts.

    Raises:
        RecordsError: if another line is not a record.
    """
    if not path.exists():
        return {}
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    return dict(_parsed(lines, path, kind))


def _parsed(lines: Iterable[str], path: Path, kind: Any) -> Iterable[tuple[Any, Record]]:
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            yield key_of(record, kind), record
        except (ValueError, TypeError, KeyError) as error:
            raise RecordsError(f"{path}, line {number} is no record of a run ({error})") from error


def provenance() -> Record:
    """Return where a run was made: commit, torch, CPU, threads."""
    changes = _git("status", "--porcelain", "-uno").splitlines()
    # A benchmark writes its own results while it runs.
    is_changed = any("docs/results/" not in line for line in changes)
    return {
        "commit": _git("rev-parse", "HEAD") + ("-changed" if is_changed else ""),
        "torch": str(torch.__version__),
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
    }


def _git(*words: str) -> str:
    """Return what git says of this repository; nothing where it is none."""
    command = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
