"""Checkpoints that survive anything: written aside, forced to disk, renamed, checked by digest."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from annealtune.errors import RunError

FORMAT = 1
KEPT = 2


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds the old content or the new one, never a part.

    Raises:
        RunError: if the disk is full or not writable; the old content is still there.
    """
    scratch = path.with_name(path.name + ".tmp")
    try:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        reason = "no space left" if error.errno == errno.ENOSPC else error.strerror
        raise RunError(
            f"{path}: cannot be written: {reason}. What was saved before is intact: make room or "
            "allow writing, then continue with --resume"
        ) from error


class Checkpoints:
    """The last two checkpoints of a run.

    Each is a file of tensors and plain data with a manifest beside it that holds its digest; the
    manifest is written last, so a checkpoint without one does not exist.

    Args:
        directory: is created if it is not there.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a checkpoint, then remove those before the last two."""
        try:
            self.directory.mkdir(exist_ok=True)
        except OSError as error:
            raise RunError(f"{self.directory}: cannot be made: {error.strerror}") from error
        buffer = io.BytesIO()
        torch.save({"format": FORMAT, **state}, buffer)
        content = buffer.getvalue()
        name = f"step-{step:010d}"
        manifest = {
            "format": FORMAT,
            "step": step,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        # A run may come back to the same step: without its manifest the old file is not trusted.
        self._manifest(name).unlink(missing_ok=True)
        write_atomically(self.directory / f"{name}.pt", content)
        write_atomically(self._manifest(name), json.dumps(manifest).encode())
        for old in self._names()[KEPT:]:
            self._manifest(old).unlink(missing_ok=True)
            (self.directory / f"{old}.pt").unlink(missing_ok=True)

    def load(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """Return the newest good checkpoint, None if there is none at all.

        Args:
            warn: told of a damaged checkpoint that is passed over.

        Raises:
            RunError: if there are checkpoints and all of them are damaged.
        """
        names = self._names()
        damages = []
        for name in names:
            damage, state = self._read(name)
            if state is not None:
                for earlier in damages:
                    warn(f"{earlier}; continuing from {name}")
                return state
            damages.append(damage)
        if damages:
            raise RunError(
                f"{self.directory}: no checkpoint can be used: {'; '.join(damages)}. Nothing was "
                "changed: restore a file from a backup, or start again in another directory"
            )
        return None

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints, newest first."""
        return [int(name.removeprefix("step-")) for name in self._names()]

    def remove_scratch(self) -> None:
        """Remove what an interrupted write left behind."""
        for scratch in self.directory.glob("*.tmp"):
            scratch.unlink()

    def _read(self, name: str) -> tuple[str, dict[str, Any] | None]:
        path = self.directory / f"{name}.pt"
        try:
            manifest = json.loads(self._manifest(name).read_text(encoding="utf-8"))
            content = path.read_bytes()
        except (OSError, ValueError) as error:
            return f"{path.name} cannot be read ({error})", None
        if hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
            return f"{path.name} is damaged (its digest is not the one in its manifest)", None
        if manifest.get("format") != FORMAT:
            return f"{path.name} has format {manifest.get('format')}, not {FORMAT}", None
        state: dict[str, Any] = torch.load(
            io.BytesIO(content), map_location="cpu", weights_only=True
        )
        return "", state

    def _manifest(self, name: str) -> Path:
        return self.directory / f"{name}.json"

    def _names(self) -> list[str]:
        return sorted((path.stem for path in self.directory.glob("step-*.json")), reverse=True)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
