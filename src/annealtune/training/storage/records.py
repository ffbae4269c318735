"""What is written of every epoch; `docs/metrics.md` says what each number means."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from annealtune.annealing.race import RaceInfo
from annealtune.errors import RunError
from annealtune.optim import StepInfo
from annealtune.optim.step_info import Tally
from annealtune.training.plain_data import Check, read_lines

from .files import explained, finite, open_to_append, write_all, write_atomically
from .seal import unreadable


class EpochTally:
    """The sums of one epoch in progress; its state is plain data."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, float] = defaultdict(int)
        self._settings = Tally()
        self._races: list[dict[str, Any]] = []

    def add(self, loss: float, info: StepInfo | None, races: Iterable[RaceInfo] = ()) -> None:
        """Add one step: the loss before it, the move and the races that ended with it, if any.

        A loss that is not finite does not count.
        """
        sums = self._sums
        if math.isfinite(loss):
            sums["steps"] += 1
            sums["loss"] += loss
        self._races += [race.to_dict() for race in races]
        if info is None:
            return
        self._settings.add(info)
        sums["moves"] += 1
        sums["improved"] += info.improved
        sums["accepted"] += info.accepted
        sums["probability"] += info.accept_probability
        if info.accepted and isinstance(info.setting.get("lr"), int | float):
            sums["rated"] += 1
            sums["rate"] += info.setting["lr"]
        if not math.isfinite(info.new_loss):
            sums["non_finite"] += 1
        elif info.worsening > 0:
            sums["accepted_worsening" if info.accepted else "rejected_worsening"] += 1
            sums["worsening_probability"] += info.accept_probability

    def metrics(self) -> dict[str, Any]:
        """Return what the epoch gave; what is about moves and races only where there were any."""
        sums = self._sums
        metrics: dict[str, Any] = {"train_loss": _ratio(sums["loss"], sums["steps"])}
        if sums["moves"]:
            worsening = sums["accepted_worsening"] + sums["rejected_worsening"]
            metrics |= {
                "acceptance_rate": _ratio(sums["accepted"], sums["moves"]),
                "improvement_rate": _ratio(sums["improved"], sums["moves"]),
                "accepted_worsening": sums["accepted_worsening"],
                "rejected_worsening": sums["rejected_worsening"],
                "non_finite": sums["non_finite"],
                "accept_probability": _ratio(sums["probability"], sums["moves"]),
                "worsening_accept_probability": _ratio(sums["worsening_probability"], worsening),
            }
        if sums["rated"]:
            metrics["rate"] = sums["rate"] / sums["rated"]
        if self._races:
            metrics["races"] = list(self._races)
        return metrics

    def moves(self) -> list[dict[str, Any]]:
        """Return how often each setting was tried, improved the loss, was accepted."""
        return [
            {"setting": setting, "tried": tried, "improved": improved, "accepted": accepted}
            for setting, tried, improved, accepted in self._settings.state_dict()
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs, as plain data."""
        return {
            "sums": dict(self._sums),
            "settings": self._settings.state_dict(),
            "races": list(self._races),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._sums = defaultdict(int, state["sums"])
        self._settings.load_state_dict(state["settings"])
        self._races = list(state["races"])


class RecordFile:
    """Lines of JSON, appended and forced to disk one at a time; read in the form of `forms.py`.

    Only one process writes: it knows how long the file is and what is in it, so that a file which
    was changed, removed or replaced meanwhile is noticed instead of added to.
    """

    def __init__(self, path: Path, check: Check | None = None) -> None:
        self.path = path
        self._check = check
        self._size = 0
        self._digest = hashlib.sha256()

    def append(self, record: dict[str, Any]) -> None:
        """Write one line; numbers that are not finite become null.

        Raises:
            RunError: if the disk is full or not writable, or the file is not what was written.
        """
        line = (json.dumps(finite(record), allow_nan=False) + "\n").encode()
        self._check_no_link()
        with explained(self.path):
            try:
                file = open_to_append(self.path, create=not self._size)
            except FileNotFoundError:
                raise self._changed("is gone") from None
            with file:
                size = os.fstat(file.fileno()).st_size
                if size != self._size:
                    raise self._changed(f"has {size} bytes, the run wrote {self._size}")
                write_all(file.fileno(), line)
                os.fsync(file.fileno())
        self._size += len(line)
        self._digest.update(line)

    def seal(self) -> list[Any]:
        """Return length and SHA-256 of what was written, without reading it again."""
        return [self._size, self._digest.hexdigest()]

    def size(self) -> int:
        """Return the length in bytes, 0 if there is no file."""
        return self.path.stat().st_size if self.path.exists() else 0

    def check_reaches(self, size: int) -> None:
        """Check that all of what a checkpoint counts on is there.

        Raises:
            RunError: if the file is shorter, or a link to another place.
        """
        self._check_no_link()
        if self.size() < size:
            raise RunError(
                f"{self.path}: has {self.size()} bytes, but {size} were written before the last "
                "checkpoint: restore the file from a backup, or start again in another directory"
            )

    def cut(self, size: int) -> None:
        """Take away what was written after a checkpoint, and go on from there."""
        with explained(self.path):
            content = self.path.read_bytes()[:size] if size else b""
            if self.path.exists() and self.path.stat().st_nlink > 1:
                write_atomically(self.path, content)  # a copy by hard links keeps its own
            elif self.size() > size:
                os.truncate(self.path, size)
            self._digest = hashlib.sha256(content)
            self._size = size

    def read(self, size: int | None = None) -> list[dict[str, Any]]:
        """Return all records; a last line that was not completely written is left out.

        Args:
            size: how many bytes count; by default all.

        Raises:
            RunError: if a line is not JSON or not of its form, or the file cannot be read.
        """
        try:
            return read_lines(self.path, self._check, size)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(self.path, error) from error
        except ValueError as error:
            raise RunError(
                f"{self.path}: has a damaged line: {error}; restore the file from a backup"
            ) from None

    def _check_no_link(self) -> None:
        if self.path.is_symlink():
            raise RunError(
                f"{self.path}: is a symbolic link, which is not written through: put the file "
                "itself there"
            )

    def _changed(self, what: str) -> RunError:
        return RunError(
            f"{self.path}: was changed while the run went on: it {what}. Nothing more was written: "
            "leave the files of a run to it alone; --resume says what can be continued"
        )


def _ratio(sum_: float, count: float) -> float:
    return sum_ / count if count else math.nan
