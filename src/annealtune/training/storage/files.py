"""How files are written, read and locked: a crash or a full disk never leaves half a file.

Imports no torch.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock

from annealtune.errors import RunError

LOCK = ".lock"


class DamageError(Exception):
    """What is wrong with a file: its name and the rest of the sentence."""


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
def locked(directory: Path) -> Iterator[None]:
    """Hold a run directory; it is free again when the process ends, however it ends.

    Raises:
        RunError: if another process holds it, or it cannot be written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(directory / LOCK, timeout=0)
        lock.acquire()
    except filelock.Timeout:
        raise RunError(
            f"{directory}: another process is working in this directory; wait for it or "
            "choose another --out"
        ) from None
    except OSError as error:
        raise RunError(
            f"{directory}: cannot be used as a run directory: {error.strerror or error}; "
            "choose another --out"
        ) from error
    try:
        yield
    finally:
        lock.release()


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
        scratch.write_bytes(content)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write plain data atomically; numbers that are not finite become null."""
    write_atomically(path, json_text(content))


def json_text(content: dict[str, Any]) -> bytes:
    """Return what `write_json` writes."""
    return json.dumps(finite(content), indent=2, allow_nan=False).encode()


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote.

    Raises:
        RunError: if it cannot be read, or is something else.
    """
    try:
        return _table(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise RunError(f"{path}: cannot be read: {error}; restore it from a backup") from None


class RecordFile:
    """Lines of JSON, appended and forced to disk one at a time.

    Only one process writes: it knows how long the file is and what is in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = 0
        self._digest = hashlib.sha256()

    @property
    def written(self) -> list[Any]:
        """Length and SHA-256 of what was written, without reading it again."""
        return [self._size, self._digest.hexdigest()]

    def append(self, record: dict[str, Any]) -> None:
        """Write one line; numbers that are not finite become null.

        Raises:
            RunError: if the disk is full or not writable.
        """
        line = (json.dumps(finite(record), allow_nan=False) + "\n").encode()
        with explained(self.path), self.path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._size += len(line)
        self._digest.update(line)

    def check(self, written: list[Any]) -> None:
        """Check that what a checkpoint counts on is there; more may follow.

        Raises:
            DamageError: if it is not.
            RunError: if it cannot be read.
        """
        size, sha256 = written
        if digest(self.path, size) != sha256:
            raise DamageError(f"{self.path.name} is cut or damaged within its first {size} bytes")

    def cut(self, size: int) -> None:
        """Take away what was written after a checkpoint, and go on from there."""
        with explained(self.path):
            content = self.path.read_bytes() if self.path.exists() else b""
            if len(content) > size:
                os.truncate(self.path, size)
        self._size = size
        self._digest = hashlib.sha256(content[:size])

    def read(self) -> list[dict[str, Any]]:
        """Return all records; a last line that was not completely written is left out.

        Raises:
            RunError: if a line is not JSON, or the file cannot be read.
        """
        try:
            lines = self.path.read_bytes().split(b"\n")[:-1]
            return [_table(line) for line in lines]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(self.path, error) from error
        except ValueError as error:
            raise RunError(
                f"{self.path}: has a damaged line: {error}; restore the file from a backup"
            ) from None


def digest(path: Path, size: int | None = None) -> str:
    """Return the SHA-256 of a file, or of its first bytes; one that is missing is empty.

    Raises:
        RunError: if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            if size is None:
                return hashlib.file_digest(file, "sha256").hexdigest()
            return hashlib.sha256(file.read(size)).hexdigest()
    except FileNotFoundError:
        return hashlib.sha256().hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> RunError:
    """Return the error about something that may be whole but cannot be read."""
    return RunError(
        f"{path}: cannot be read: {error.strerror or error}. Nothing was changed: allow reading or "
        "bring the disk back, then try again"
    )


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


def _table(content: bytes) -> dict[str, Any]:
    value = json.loads(content)
    if not isinstance(value, dict):
        raise ValueError("it must hold a JSON object")
    return value
