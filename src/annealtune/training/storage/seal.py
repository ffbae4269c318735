"""The files of a run, and the digests of a finished one. Imports no torch.

``SHA256SUMS`` has a line for every file, as ``sha256sum`` writes and checks it. It is written right
before ``result.json``, which says that the run is finished.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from annealtune.errors import RunError

from . import CONFIG_FILE
from .files import digest, json_text, unreadable, write_atomically

SEAL_FILE = "SHA256SUMS"
RESULT_FILE = "result.json"
TASK_FILE = "task.json"
BEST_FILE = "best.json"
WEIGHTS = "best.safetensors"
METRICS, MOVES = "metrics.jsonl", "moves.jsonl"
CHECKPOINTS = "checkpoints"
_OTHERS = (CONFIG_FILE, TASK_FILE, METRICS, MOVES, BEST_FILE, WEIGHTS)


def seal_run(run: Path, result: dict[str, Any]) -> None:
    """Write the digests of all files of a run, then its result.

    Raises:
        RunError: if the disk refuses.
    """
    text = json_text(result)
    lines = [_line(run, name) for name in _OTHERS]
    lines.append(f"{hashlib.sha256(text).hexdigest()}  {RESULT_FILE}\n")
    write_atomically(run / SEAL_FILE, "".join(lines).encode())
    write_atomically(run / RESULT_FILE, text)


def check_run(run: Path, *, large: bool = True) -> None:
    """Check every file of a finished run against its digest; a run without any is taken as it is.

    Args:
        run: its directory.
        large: whether the weights are read too; their digest takes time.

    Raises:
        RunError: naming what is damaged or missing, or cannot be read.
    """
    path = run / SEAL_FILE
    if not (run / RESULT_FILE).exists() or not path.exists():
        return
    try:
        sealed = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except OSError as error:
        raise unreadable(path, error) from error
    for name in (*_OTHERS, RESULT_FILE):
        expected = next((line for line in sealed if line.endswith(f"  {name}\n")), "")
        if (large or name != WEIGHTS) and _line(run, name) != expected:
            raise RunError(
                f"{run}: {name} is damaged, changed or missing: its digest is not that in "
                f"{SEAL_FILE}. Put it back as it was or restore it from a backup"
            )


def _line(run: Path, name: str) -> str:
    """Return the line about a file; nothing if there is no such file, as moves of plain methods."""
    path = run / name
    return f"{digest(path)}  {name}\n" if path.exists() else ""
