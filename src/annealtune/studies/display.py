"""What a person sees of a study: a line for all that happens, whichever engine runs it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from annealtune.studies.engines import EventKind
from annealtune.studies.plan import Task
from annealtune.training.progress import describe
from annealtune.training.storage.files import RecordFile
from annealtune.training.storage.seal import METRICS


class Display:
    """Writes a line for all that happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._over = 0
        self._started: dict[Path, float] = {}

    @contextmanager
    def showing(self, tasks: Sequence[Task], done: int) -> Iterator[None]:
        """Show tasks, of which some are done, while the context lasts."""
        self._total, self._over = len(tasks), done
        self._print(f"{len(tasks) - done} of {len(tasks)} runs to do")
        yield

    def happened(self, kind: EventKind, task: Task, detail: str) -> None:
        """Say what happened; see `Observer`."""
        told = f": {detail}" if detail else ""
        if kind == "started":
            self._started[task.path] = time.monotonic()
            if epochs := task.epochs_done():
                told = f" again, {epochs} of {task.config.epochs} epochs are there"
        if kind == "finished":
            seconds = time.monotonic() - self._started.get(task.path, time.monotonic())
            last = RecordFile(task.path / METRICS).read()[-1]
            told = f": {describe(last)}  ({seconds:.0f} s)"
        if kind in ("finished", "failed"):
            self._over += 1
        position = f"[{self._over:{len(str(self._total))}}/{self._total}]"
        self._print(f"{position} {kind} {task.name}{told}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
