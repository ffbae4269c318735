"""What a person sees of a study: a line for all that happens, whichever engine runs it."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from annealtune.studies.engines import Event, Task
from annealtune.training.progress import describe
from annealtune.training.storage.seal import METRICS


class Display:
    """An observer that knows what it is about to see, and writes a line for all that happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._over = 0
        self._started: dict[Path, float] = {}

    @contextmanager
    def showing(self, tasks: Sequence[Task], done: int) -> Iterator[None]:
        """Show tasks, of which some are done, while the context lasts."""
        self._total, self._over = len(tasks), done
        self._started = {}
        self._print(f"{len(tasks) - done} of {len(tasks)} runs to do")
        yield

    def happened(self, event: Event) -> None:
        """Say it."""
        task = event.task
        if event.kind == "started":
            self._started[task.path] = time.monotonic()
        if event.kind in ("finished", "failed"):
            self._over += 1
        position = f"[{self._over:{len(str(self._total))}}/{self._total}]"
        self._print(f"{position} {event.kind} {task.name}{self._words(event)}")

    def refresh(self) -> None:
        """Do nothing: between two events there is nothing to say."""

    def _words(self, event: Event) -> str:
        task = event.task
        if event.kind == "finished":
            seconds = time.monotonic() - self._started.get(task.path, time.monotonic())
            return f": {describe(last_record(task.path))}  ({seconds:.0f} s)"
        if event.kind == "started" and (epochs := task.epochs_done()):
            return f" again, {epochs} of {task.config.epochs} epochs are there"
        return f": {event.detail}" if event.detail else ""

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def last_record(run: Path) -> dict[str, Any]:
    """Return the numbers of the last epoch of a run, none if there is no epoch that can be read."""
    try:
        lines = (run / METRICS).read_bytes().split(b"\n")[:-1]
        record = json.loads(lines[-1]) if lines else {}
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in record.items() if isinstance(value, int | float)}
