"""The files of a run, and one digest over those of a finished one. Imports no torch.

``seal.json`` holds the text of ``config.toml``, length and SHA-256 of every other file, and its own
digest. It is written right before ``result.json``, which says that the run is finished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from annealtune.errors import RunError

from . import CONFIG_FILE
from .files import DamageError, digest, finite, json_text, unreadable, write_atomically

SEAL_FILE = "seal.json"
RESULT_FILE = "result.json"
TASK_FILE = "task.json"
BEST_FILE = "best.json"
WEIGHTS = "best.safetensors"
METRICS, MOVES = "metrics.jsonl", "moves.jsonl"
CHECKPOINTS = "checkpoints"
_SEALED = (TASK_FILE, METRICS, MOVES, BEST_FILE, WEIGHTS)
_OWN = "seal"


def seal_run(run: Path, result: dict[str, Any]) -> None:
    """Write the seal over the files of a run, then its result.

    Raises:
        RunError: if the disk refuses.
    """
    text = json_text(result)
    files = {name: digest(run / name) for name in _SEALED}
    files[RESULT_FILE] = [len(text), hashlib.sha256(text).hexdigest()]
    config = (run / CONFIG_FILE).read_text(encoding="utf-8")
    write_atomically(run / SEAL_FILE, sealed_text({"config": config, "files": files}))
    write_atomically(run / RESULT_FILE, text)


def check_run(run: Path, *, large: bool = True) -> None:
    """Check every file of a finished run against its seal; what has none is taken as it is.

    Args:
        run: its directory.
        large: whether the weights are read too; their digest takes time.

    Raises:
        RunError: naming what is damaged or missing, or cannot be read.
    """
    if not (run / RESULT_FILE).exists() or not (run / SEAL_FILE).exists():
        return
    try:
        seal = read_seal(run / SEAL_FILE)
        if _read(run / CONFIG_FILE) != seal["config"].encode():
            raise DamageError(f"{CONFIG_FILE} was changed since the run was finished")
        for name, sealed in seal["files"].items():
            if (large or name != WEIGHTS) and digest(run / name) != sealed:
                raise DamageError(f"{name} is damaged or missing: its digest does not fit")
    except DamageError as damage:
        raise RunError(
            f"{run}: {damage}. Put it back as it was or restore it from a backup"
        ) from None


def read_seal(path: Path) -> dict[str, Any]:
    """Read the seal of a finished run.

    Raises:
        DamageError: if it is missing or damaged.
        RunError: if it cannot be read.
    """
    return unsealed(_read(path), path.name)


def sealed_text(content: Mapping[str, Any]) -> bytes:
    """Return plain data as JSON with its own digest, by which every changed byte is noticed.

    Example:
        >>> text = sealed_text({"step": 3})
        >>> unsealed(text, "step.json")
        {'step': 3}
        >>> unsealed(text.replace(b"3", b"4", 1), "step.json")
        Traceback (most recent call last):
        annealtune.training.storage.files.DamageError: step.json is damaged: its digest does not fit
    """
    plain = finite(dict(content))
    own = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return json.dumps({**plain, _OWN: own}, indent=1, allow_nan=False).encode()


def unsealed(text: bytes, name: str) -> dict[str, Any]:
    """Return what was given to `sealed_text`.

    Raises:
        DamageError: if it is something else.
    """
    try:
        content = json.loads(text)
        content.pop(_OWN)
        is_whole = text == sealed_text(content)
    except (ValueError, TypeError, AttributeError, KeyError):  # whatever damage makes of it
        is_whole = False
    if not is_whole:
        raise DamageError(f"{name} is damaged: its digest does not fit")
    return dict(content)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DamageError(f"{path.name} is missing") from None
    except OSError as error:
        raise unreadable(path, error) from error
