"""What a run learns, written down so that its model can be built without the data."""

from __future__ import annotations

from pathlib import Path

from annealtune.errors import DataError, RunError
from annealtune.training.plain_data import parse_json
from annealtune.training.task import Task

from .files import json_text, read_json, write_json
from .forms import check_task


def read_task(path: Path) -> Task | None:
    """Read a task, None if there is none.

    Raises:
        RunError: if it cannot be read.
    """
    if not path.exists():
        return None
    content = read_json(path, check_task)
    try:
        return Task.from_dict(content)
    except (TypeError, ValueError) as error:
        raise RunError(f"{path}: does not describe a task: {error}") from None


def check_can_be_noted(task: Task) -> None:
    """Check, before anything is written, that a task can be read again once it is.

    Raises:
        DataError: if not: names that no file can hold, more axes or values than there may be.
    """
    try:
        check_task(parse_json(json_text(task.to_dict())))
    except ValueError as error:
        raise DataError(
            f"the data cannot be written down for those who use the model later: {error}"
        ) from None


def note_task(path: Path, task: Task) -> None:
    """Write a task down, or compare it with the one that is there.

    Raises:
        RunError: if the run began with other data.
    """
    noted = read_task(path)
    if noted is None:
        write_json(path, task.to_dict())
    elif noted != task:
        ours, theirs = noted.to_dict(), task.to_dict()
        differing = [
            f"{key} {theirs[key]} (the run has {ours[key]})"
            for key in ours
            if ours[key] != theirs[key]
        ]
        raise RunError(
            f"{path.parent}: the data is not what the run began with: {'; '.join(differing)}. "
            "Put it back as it was, or start again in another directory"
        )
