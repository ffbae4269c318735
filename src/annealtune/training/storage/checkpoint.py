"""Checkpoints that survive anything: written aside, forced to disk, renamed, checked by digest."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from annealtune.errors import RunError

from .files import explained, write_atomically
from .seal import (
    FORMAT,
    DamageError,
    check_checkpoint,
    checkpoint_file,
    is_older,
    manifest_of,
    manifests,
    parsed,
    read_bytes,
    sealed_text,
    step_of,
)

KEPT = 2
# Of what is inside the file of a checkpoint.
_STATE_FORMAT = 1

Seal = dict[str, Any]


class Checkpoints:
    """The last two checkpoints of a run.

    Each is a file of tensors and plain data with a manifest that names it, holds its digest and
    seals the rest of the run. The manifest is written last and the file's name contains the digest:
    until the new manifest is in place the old one, also of the same step, still points to what it
    describes. The manifest of step 0 has no file: there the run starts from its config.

    Attributes:
        seal: the manifest of the checkpoint that was loaded or saved last; None if there is none,
            or it is of an earlier version.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.seal: Seal | None = None

    def begin(self, sealed: Mapping[str, Any]) -> None:
        """Seal a run that has made no step.

        Raises:
            RunError: if the disk refuses.
        """
        with explained(self.directory):
            self.directory.mkdir(exist_ok=True)
        self._seal({**_describe(0, None), **sealed})

    def save(self, step: int, state: dict[str, Any], sealed: Mapping[str, Any]) -> None:
        """Write a checkpoint, then remove those before the last two.

        Args:
            step: how many steps the run has made.
            state: tensors and plain data.
            sealed: what else the manifest holds.

        Raises:
            RunError: if the disk refuses; the checkpoints before this one are still there.
        """
        with explained(self.directory):
            self.directory.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        torch.save({"format": _STATE_FORMAT, **state}, buffer)
        content = buffer.getvalue()
        manifest = _describe(step, content)
        try:
            write_atomically(self.directory / manifest["file"], content)
            self._seal({**manifest, **sealed})
        except RunError:
            with contextlib.suppress(OSError, RunError):
                self._remove_unlisted()
            raise
        self.tidy(step)

    def tidy(self, step: int) -> None:
        """Remove what is no longer needed: all but the last two checkpoints up to a step.

        Raises:
            RunError: if the disk refuses.
        """
        with explained(self.directory):
            self._remove_old(step)

    def load(
        self,
        warn: Callable[[str], None],
        check: Callable[[Seal], None] = lambda _: None,
    ) -> dict[str, Any] | None:
        """Return the newest good checkpoint, None if the run starts from its config.

        Warns of a damaged one that is skipped, or that is not needed.

        Args:
            warn: is told.
            check: raises a `DamageError` if what a manifest seals is no longer there.

        Raises:
            RunError: if there are checkpoints and all of them are damaged, or one cannot be read.
        """
        try:
            names = manifests(self.directory)
        except FileNotFoundError:
            return None
        damages: list[str] = []
        for number, name in enumerate(names):
            try:
                state = self._read(name, check)
            except DamageError as damage:
                damages.append(str(damage))
                continue
            for fault in dict.fromkeys(damages):
                warn(f"{fault}; continuing from {name}")
            for other in names[number + 1 :]:
                self._look_at(other, warn)
            return state
        if damages:
            raise RunError(
                f"{self.directory}: no checkpoint can be used: {'; '.join(dict.fromkeys(damages))}."
                " Nothing was changed: restore a file from a backup, or start again in another "
                "directory"
            )
        if self._unlisted():
            raise RunError(
                f"{self.directory}: no checkpoint has its manifest. Nothing was changed: restore "
                "the manifests from a backup, or start again in another directory"
            )
        return None

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints, newest first."""
        try:
            return [step for step in map(step_of, manifests(self.directory)) if step]
        except FileNotFoundError:
            return []

    def remove_scratch(self) -> None:
        """Remove what an interrupted write left behind."""
        for scratch in self.directory.glob("step-*.tmp"):
            if not scratch.is_dir():
                scratch.unlink()

    def _seal(self, manifest: Seal) -> None:
        write_atomically(self._manifest(_name(manifest["step"])), sealed_text(manifest))
        self.seal = manifest

    def _look_at(self, name: str, warn: Callable[[str], None]) -> None:
        """Say if an older checkpoint could not be used; the next save takes its place."""
        try:
            check_checkpoint(self.directory, self._read_manifest(name))
        except DamageError as damage:
            warn(f"{damage}; it is not needed now")

    def _read(self, name: str, check: Callable[[Seal], None]) -> dict[str, Any] | None:
        manifest = self._read_manifest(name)
        is_sealed = manifest["format"] == FORMAT
        if is_sealed:
            check(manifest)
        self.seal = manifest if is_sealed else None
        if manifest["file"] is None:
            return None
        path = checkpoint_file(self.directory, manifest)
        content = read_bytes(path)
        described = _describe(step_of(name), content)
        if any(manifest[key] != described[key] for key in described if key != "format"):
            raise DamageError(f"{path.name} is damaged: it is not what its manifest describes")
        try:
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except Exception as error:  # the file is whole but not ours: whatever it provokes
            raise DamageError(
                f"{path.name} is refused: it holds more than tensors and plain data"
            ) from error
        if not isinstance(state, dict) or state.get("format") != _STATE_FORMAT:
            raise DamageError(f"{path.name} is not a checkpoint of format {_STATE_FORMAT}")
        return state

    def _read_manifest(self, name: str) -> Seal:
        path = self._manifest(name)
        text = read_bytes(path)
        manifest = parsed(text, path.name)
        number = manifest.get("format")
        if number == FORMAT:
            manifest = manifest_of(text, path.name)
        elif not is_older(manifest) or manifest.keys() != _describe(0, b"").keys():
            raise DamageError(
                f"{path.name} is damaged: it has format {number!r}, this version reads up to "
                f"{FORMAT}"
            )
        if manifest["step"] != step_of(name):
            raise DamageError(f"{path.name} is damaged: it describes step {manifest['step']!r}")
        return manifest

    def _remove_old(self, step: int) -> None:
        """Keep the last two up to this step; later ones are damaged and were skipped."""
        names = manifests(self.directory)
        kept = [name for name in names if step_of(name) <= step][:KEPT]
        for name in set(names) - set(kept):
            self._manifest(name).unlink()
        self._remove_unlisted()

    def _remove_unlisted(self) -> None:
        """Remove files that no manifest names."""
        for path in self._unlisted():
            path.unlink()

    def _unlisted(self) -> list[Path]:
        listed = set()
        for name in manifests(self.directory):
            with contextlib.suppress(DamageError):
                listed.add(self._read_manifest(name)["file"])
        return [path for path in self.directory.glob("step-*.pt") if path.name not in listed]

    def _manifest(self, name: str) -> Path:
        return self.directory / f"{name}.json"


def _name(step: int) -> str:
    return f"step-{step:010d}"


def _describe(step: int, content: bytes | None) -> Seal:
    if content is None:
        return {"format": FORMAT, "step": step, "file": None, "bytes": 0, "sha256": None}
    digest = hashlib.sha256(content).hexdigest()
    return {
        "format": FORMAT,
        "step": step,
        "file": f"{_name(step)}-{digest[:12]}.pt",
        "bytes": len(content),
        "sha256": digest,
    }
