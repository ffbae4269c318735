"""One seal over a run directory: digests that bind its files together. Imports no torch.

The manifest of every checkpoint is a seal of the run at that step: the text of ``config.toml``, the
digests of the task, the best weights and of the records as far as they went, and its own. Records
that come after it are cut when the run is continued, and shown nowhere. ``seal.json`` is the seal
of a finished run; it is written right before ``result.json``, whose digest it holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from annealtune.errors import RunError
from annealtune.training.config import ENVIRONMENT
from annealtune.training.plain_data import Check, open_regular, parse_json, parse_toml, read_regular

from . import CONFIG_FILE
from .files import finite
from .forms import check_manifest, check_seal

FORMAT = 2
SEAL_FILE = "seal.json"
RESULT_FILE = "result.json"
TASK_FILE = "task.json"
BEST_FILE = "best.json"
WEIGHTS = "best.safetensors"
# New best weights until the checkpoint that knows them is saved.
NEW_WEIGHTS = "best.safetensors.new"
METRICS, MOVES = "metrics.jsonl", "moves.jsonl"
RECORDS = (METRICS, MOVES)
CHECKPOINTS = "checkpoints"
# In the table `environment` of config.toml: the format of the seal; what was changed later.
MARK, CHANGES = "seal", "changes"
_OWN = "seal"
_BLOCK = 1 << 20


class DamageError(Exception):
    """What is wrong with a file: its name and the rest of the sentence."""


def sealed_text(content: Mapping[str, Any]) -> bytes:
    """Return plain data as JSON with its own digest, by which every changed byte is noticed.

    Example:
        >>> text = sealed_text({"format": FORMAT, "step": 3})
        >>> unsealed(text, "step.json")
        {'format': 2, 'step': 3}
        >>> unsealed(text.replace(b"3", b"4", 1), "step.json")
        Traceback (most recent call last):
        annealtune.training.storage.seal.DamageError: step.json is damaged: its digest does not fit
    """
    plain = finite(dict(content))
    own = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return json.dumps({**plain, _OWN: own}, indent=1, allow_nan=False).encode()


def unsealed(text: bytes, name: str) -> dict[str, Any]:
    """Return what was given to `sealed_text`.

    Raises:
        DamageError: if it is something else.
    """
    content = {key: value for key, value in parsed(text, name).items() if key != _OWN}
    if text != sealed_text(content):
        raise DamageError(f"{name} is damaged: its digest does not fit")
    return content


def read_seal(path: Path) -> dict[str, Any]:
    """Read the seal of a finished run.

    Raises:
        DamageError: if it is missing, damaged or of another format.
        RunError: if it cannot be read.
    """
    return _opened(read_bytes(path), path.name, check_seal)


def manifest_of(text: bytes, name: str) -> dict[str, Any]:
    """Return the seal of a checkpoint from what stands in its file, as `read_seal`."""
    return _opened(text, name, check_manifest)


def _opened(text: bytes, name: str, check: Check) -> dict[str, Any]:
    number = parsed(text, name).get("format")
    if number != FORMAT:
        raise DamageError(f"{name} has format {number!r}, this version reads up to {FORMAT}")
    content = unsealed(text, name)
    try:
        check(content)
    except ValueError as fault:
        raise DamageError(f"{name} is damaged: {fault}") from None
    return content


def parsed(content: bytes, name: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        DamageError: if it is none.
    """
    try:
        value = parse_json(content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise DamageError(f"{name} cannot be read: it is damaged")
    return value


def read_bytes(path: Path) -> bytes:
    """Read a file.

    Raises:
        DamageError: if it is not there.
        RunError: if it cannot be read: it may be whole, so nothing may be concluded from that.
    """
    try:
        return read_regular(path)
    except FileNotFoundError:
        raise DamageError(f"{path.name} is missing") from None
    except OSError as error:
        raise unreadable(path, error) from error


def digest(path: Path, size: int | None = None) -> list[Any]:
    """Return length and SHA-256 of a file, or of its first bytes; one that is missing is empty.

    Raises:
        RunError: if it cannot be read.
    """
    found = hashlib.sha256()
    length = 0
    try:
        with open_regular(path) as file:
            while block := file.read(_BLOCK if size is None else min(_BLOCK, size - length)):
                found.update(block)
                length += len(block)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise unreadable(path, error) from error
    return [length, found.hexdigest()]


def unreadable(path: Path, error: OSError) -> RunError:
    """Return the error about something that may be whole but cannot be read."""
    return RunError(
        f"{path}: cannot be read: {error.strerror or error}. Nothing was changed: allow reading or "
        "bring the disk back, then try again"
    )


def manifests(directory: Path) -> list[str]:
    """Return the names of the manifests of a run's checkpoints, newest first.

    Raises:
        FileNotFoundError: if the directory is not there.
        RunError: if it cannot be read.
    """
    try:
        names = os.listdir(directory)  # noqa: PTH208 - Path.glob takes what it may not read for empty
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(directory, error) from error
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    steps = (stem for stem in stems if stem.startswith("step-") and stem[5:].isdecimal())
    return sorted(steps, key=step_of, reverse=True)


def step_of(name: str) -> int:
    """Return the step of a checkpoint from its name."""
    return int(name.removeprefix("step-"))


def is_marked(run: Path) -> bool:
    """Tell whether a run's config says that it is sealed."""
    try:
        table = parse_toml((run / CONFIG_FILE).read_text(encoding="utf-8")).get(ENVIRONMENT)
    except (OSError, ValueError):
        return False
    return isinstance(table, dict) and MARK in table


def newest_seal(run: Path) -> dict[str, Any] | None:
    """Return the newest seal of a run's checkpoints that is whole, None if there is none.

    Raises:
        RunError: if one cannot be read.
    """
    directory = run / CHECKPOINTS
    try:
        names = manifests(directory)
    except FileNotFoundError:
        return None
    for name in names:
        with contextlib.suppress(DamageError):
            path = directory / f"{name}.json"
            return manifest_of(read_bytes(path), path.name)
    return None


def check_size(path: Path, sealed: list[Any], *, whole: bool = True) -> None:
    """Check a file against its sealed length and digest.

    Args:
        path: of the file.
        sealed: what `digest` returned.
        whole: whether nothing may follow; else only its beginning was sealed.

    Raises:
        DamageError: if it is another one.
        RunError: if it cannot be read.
    """
    size = sealed[0]
    if size and not os.path.lexists(path):
        raise DamageError(f"{path.name} is missing")
    found = digest(path, None if whole else size)
    if found[0] != size:
        more = f"{found[0]} bytes, {size} were sealed"
        raise DamageError(f"{path.name} was cut or added to: it has {more}")
    if found != sealed:
        part = "its content" if whole else f"what stands in its first {size} bytes"
        raise DamageError(f"{path.name} is damaged: {part} is not what was sealed")


def check_checkpoint(directory: Path, seal: Mapping[str, Any]) -> None:
    """Check the file of a checkpoint against its manifest.

    Raises:
        DamageError: if it is missing or another one.
        RunError: if it cannot be read.
    """
    if seal["file"] is not None:
        check_size(checkpoint_file(directory, seal), [seal["bytes"], seal["sha256"]])


def checkpoint_file(directory: Path, seal: Mapping[str, Any]) -> Path:
    """Return the file that a manifest names.

    Raises:
        DamageError: if it lies elsewhere.
    """
    name = str(seal["file"])
    if Path(name).name != name:
        raise DamageError(f"a manifest names {name!r}, a file outside of the checkpoints")
    return directory / name


def check_best(run: Path, best: Mapping[str, Any] | None) -> None:
    """Check the best weights against what a seal says of them.

    Raises:
        DamageError: if they are other ones.
        RunError: if they cannot be read.
    """
    if best is not None and weights_of(run, best) is None:
        raise DamageError(f"{WEIGHTS} is damaged or missing: its digest is not what was sealed")


def weights_of(run: Path, best: Mapping[str, Any]) -> Path | None:
    """Return the file with the sealed best weights, None if none has their digest."""
    for name in (WEIGHTS, NEW_WEIGHTS):
        if digest(run / name)[1] == best["sha256"]:
            return run / name
    return None


def is_older(manifest: Mapping[str, Any]) -> bool:
    """Tell whether a manifest is of an earlier version, which sealed the checkpoint alone."""
    return manifest.get("format") == 1 and _OWN not in manifest


def digest_of(content: bytes) -> list[Any]:
    """Return length and SHA-256 of some bytes."""
    return [len(content), hashlib.sha256(content).hexdigest()]
