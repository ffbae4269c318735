"""Checkpoints that survive anything: written aside, forced to disk, renamed, checked by digest."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from annealtune.errors import RunError
from annealtune.training.plain_data import read_object, read_regular

from .files import explained, write_atomically

FORMAT = 1
KEPT = 2


class Checkpoints:
    """The last two checkpoints of a run.

    Each is a file of tensors and plain data with a manifest that names it and holds its digest.
    The manifest is written last and the file's name contains the digest: until the new manifest
    is in place the old one, also of the same step, still points to what it describes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a checkpoint, then remove those before the last two.

        Raises:
            RunError: if the disk refuses; the checkpoints before this one are still there.
        """
        with explained(self.directory):
            self.directory.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        torch.save({"format": FORMAT, **state}, buffer)
        content = buffer.getvalue()
        manifest = _describe(step, content)
        try:
            write_atomically(self.directory / manifest["file"], content)
            write_atomically(self._manifest(_name(step)), json.dumps(manifest).encode())
        except RunError:
            with contextlib.suppress(OSError):
                self._remove_unlisted()
            raise
        with explained(self.directory):
            self._remove_old(step)

    def load(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """Return the newest good checkpoint, None if there is none at all.

        Warns of a damaged one that is skipped.

        Raises:
            RunError: if there are checkpoints and all of them are damaged.
        """
        damages: list[str] = []
        for name in self._names():
            try:
                state = self._read(name)
            except _DamageError as error:
                damages.append(str(error))
                continue
            for damage in damages:
                warn(f"{damage}; continuing from {name}")
            return state
        if damages:
            raise RunError(
                f"{self.directory}: no checkpoint can be used: {'; '.join(damages)}. Nothing was "
                "changed: restore a file from a backup, or start again in another directory"
            )
        if any(self.directory.glob("step-*.pt")):
            warn(f"{self.directory}: no checkpoint has its manifest; starting from the beginning")
        return None

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints, newest first."""
        return [_step(name) for name in self._names()]

    def remove_scratch(self) -> None:
        """Remove what an interrupted write left behind."""
        for scratch in self.directory.glob("*.tmp"):
            scratch.unlink()

    def _read(self, name: str) -> dict[str, Any]:
        manifest = self._read_manifest(name)
        if manifest is None:
            raise _DamageError(f"{name}.json cannot be read")
        if manifest.get("format") != FORMAT:
            raise _DamageError(
                f"{name}.json has format {manifest.get('format')!r}, this version reads {FORMAT}"
            )
        file = str(manifest.get("file"))
        if Path(file).name != file:
            raise _DamageError(f"{name}.json names a file outside of the checkpoints")
        path = self.directory / file
        try:
            content = read_regular(path)
        except OSError as error:
            raise _DamageError(f"{path.name} cannot be read: {error.strerror}") from None
        if manifest != _describe(_step(name), content):
            raise _DamageError(f"{path.name} is damaged: it is not what its manifest describes")
        try:
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except Exception as error:  # the file is whole but not ours: whatever it provokes
            raise _DamageError(
                f"{path.name} is refused: it holds more than tensors and plain data"
            ) from error
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            raise _DamageError(f"{path.name} is not a checkpoint of format {FORMAT}")
        return state

    def _remove_old(self, step: int) -> None:
        """Keep the last two up to this step; later ones are damaged and were skipped."""
        kept = [name for name in self._names() if _step(name) <= step][:KEPT]
        for name in set(self._names()) - set(kept):
            self._manifest(name).unlink()
        self._remove_unlisted()

    def _remove_unlisted(self) -> None:
        """Remove files that no manifest names."""
        listed = {(self._read_manifest(name) or {}).get("file") for name in self._names()}
        for path in self.directory.glob("step-*.pt"):
            if path.name not in listed:
                path.unlink()

    def _read_manifest(self, name: str) -> dict[str, Any] | None:
        try:
            manifest = read_object(self._manifest(name))
        except (OSError, ValueError):
            return None
        return manifest

    def _manifest(self, name: str) -> Path:
        return self.directory / f"{name}.json"

    def _names(self) -> list[str]:
        stems = (path.stem for path in self.directory.glob("step-*.json"))
        return sorted((stem for stem in stems if stem[5:].isdecimal()), key=_step, reverse=True)


class _DamageError(Exception):
    """Why a checkpoint cannot be used."""


def _name(step: int) -> str:
    return f"step-{step:010d}"


def _step(name: str) -> int:
    return int(name.removeprefix("step-"))


def _describe(step: int, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {
        "format": FORMAT,
        "step": step,
        "file": f"{_name(step)}-{digest[:12]}.pt",
        "bytes": len(content),
        "sha256": digest,
    }
