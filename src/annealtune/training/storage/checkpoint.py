"""Checkpoints that survive anything: written aside, forced to disk, renamed, checked by digest."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from annealtune.errors import RunError

from .files import DamageError, explained, unreadable, write_atomically

KEPT = 2
_NAME = re.compile(r"step-(\d+)-([0-9a-f]{64})\.pt")


class Checkpoints:
    """The last two checkpoints of a run.

    Each is one file of tensors and plain data, whose name holds its step and its SHA-256. So a
    checkpoint is there at once or not at all, and one of the same step never overwrites another.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._current = ""  # the file that was saved or loaded last

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a checkpoint, then remove those before the last two.

        Args:
            step: how many steps the run has made.
            state: tensors and plain data.

        Raises:
            RunError: if the disk refuses; the checkpoints before this one are still there.
        """
        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getvalue()
        name = f"step-{step:010d}-{hashlib.sha256(content).hexdigest()}.pt"
        with explained(self.directory):
            self.directory.mkdir(exist_ok=True)
            write_atomically(self.directory / name, content)
        self._current = name
        self.tidy()

    def tidy(self) -> None:
        """Remove all but the one that was saved or loaded last and the one before it.

        Those of later steps are damaged and were skipped. A disk that refused this at the end of a
        run is asked again when the run goes on.

        Raises:
            RunError: if the disk refuses.
        """
        names = self._names()
        before = [name for name in names if _step(name) < _step(self._current)]
        with explained(self.directory):
            for name in set(names) - {self._current, *before[: KEPT - 1]}:
                (self.directory / name).unlink()

    def load(
        self, warn: Callable[[str], None], check: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any] | None:
        """Return the newest good checkpoint, None if there is none at all.

        Args:
            warn: is told of a damaged one that is skipped.
            check: raises a `DamageError` if what a state counts on is not there.

        Raises:
            RunError: if there are checkpoints and all of them are damaged, or one cannot be read.
        """
        names = self._names()
        damages: list[str] = []
        for name in names:
            try:
                state = self._read(name)
                check(state)
            except DamageError as damage:
                damages.append(str(damage))
                continue
            for fault in damages:
                warn(f"{fault}; continuing from step {_step(name)}")
            self._current = name
            return state
        if names != self._names():  # a run that goes on has replaced them meanwhile
            return self.load(warn, check)
        if damages:
            raise RunError(
                f"{self.directory}: no checkpoint can be used: {'; '.join(dict.fromkeys(damages))}."
                " Nothing was changed: restore a file from a backup, or start again in another "
                "directory"
            )
        return None

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints, newest first."""
        return [_step(name) for name in self._names()]

    def _read(self, name: str) -> dict[str, Any]:
        path = self.directory / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise DamageError(f"{name} is missing") from None
        except OSError as error:
            raise unreadable(path, error) from error
        if hashlib.sha256(content).hexdigest() not in name:
            raise DamageError(f"{name} is damaged: its digest does not fit")
        try:
            state: dict[str, Any] = torch.load(
                io.BytesIO(content), map_location="cpu", weights_only=True
            )
        except Exception as error:  # the file is whole but not ours: whatever it provokes
            raise DamageError(
                f"{name} is refused: it holds more than tensors and plain data"
            ) from error
        return state

    def _names(self) -> list[str]:
        """Return the files, newest first.

        Raises:
            RunError: if the directory cannot be read.
        """
        try:
            names = os.listdir(self.directory)  # noqa: PTH208 - glob takes what it may not read for empty
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(self.directory, error) from error
        return sorted(filter(_NAME.fullmatch, names), key=_step, reverse=True)


def _step(name: str) -> int:
    return int(name.split("-")[1])
