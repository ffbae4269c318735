"""Writing so that a crash or a full disk never leaves half a file, or an unexplained error."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from annealtune.errors import RunError
from annealtune.training.plain_data import Check, read_object


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into an error that says what to do.

    Raises:
        RunError: if the disk is full or not writable.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "no space left" if full else error.strerror or str(error)
        raise RunError(
            f"{path}: cannot be written: {reason}. What was saved before is intact: make room or "
            "allow writing, then continue with --resume"
        ) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a place to write to; what is there in the end takes the place of ``path`` at once.

    Raises:
        RunError: if the disk is full or not writable; the old content is still there.
    """
    scratch = scratch_of(path)
    with explained(path):
        try:
            yield scratch
            force_to_disk(scratch)
            scratch.replace(path)
            force_to_disk(path.parent)
        except OSError:
            with contextlib.suppress(OSError):
                scratch.unlink()
            raise


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds the old content or the new one, never a part.

    Raises:
        RunError: if the disk is full or not writable; the old content is still there.
    """
    with replacing(path) as scratch:
        # A link of that name is taken away, never written through.
        scratch.unlink(missing_ok=True)
        scratch.write_bytes(content)


def open_to_append(path: Path, *, create: bool = True) -> BinaryIO:
    """Open a file to add to it; one that is a link to another place is refused.

    Raises:
        OSError: if it is one, or cannot be written, or is not there and not to be made.
    """
    flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags | (os.O_CREAT if create else 0), 0o666), "ab")


def write_all(descriptor: int, content: bytes) -> None:
    """Write to an open file until nothing is left."""
    while content:
        content = content[os.write(descriptor, content) :]


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write plain data atomically; numbers that are not finite become null."""
    write_atomically(path, json_text(content))


def json_text(content: dict[str, Any]) -> bytes:
    """Return what `write_json` writes."""
    return json.dumps(finite(content), indent=2, allow_nan=False).encode()


def read_json(path: Path, check: Check | None = None) -> dict[str, Any]:
    """Read what `write_json` wrote, in the form that a check of `forms.py` wants.

    Raises:
        RunError: if it cannot be read, or is something else.
    """
    try:
        return read_object(path, check)
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise RunError(f"{path}: cannot be read: {error}; restore it from a backup") from None


def scratch_of(path: Path) -> Path:
    """Return where a file is written before it is complete."""
    return path.with_name(path.name + ".tmp")


def finite(value: Any) -> Any:
    """Return plain data with None in place of numbers that JSON does not know."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def force_to_disk(path: Path) -> None:
    """Wait until a file or a folder is on disk, not only on its way."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
