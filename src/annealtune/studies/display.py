"""What a person sees of a study: one live table of all that runs, or lines where it is no terminal.

Both look at the files of the runs, so they show the same whichever engine runs them.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column

from annealtune.studies.engines import Event, Task
from annealtune.training.progress import describe, download_bar
from annealtune.training.storage.seal import METRICS

_SECONDS_BETWEEN_LOOKS = 0.5
# The numbers that fit next to a bar.
_WATCHED = ("validation_accuracy", "temperature", "acceptance_rate", "rate", "radius")
_ACTIVE = ("started", "waiting", "retried")


class Display:
    """An observer that knows what it is about to see, and writes a line for all that happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._over = 0
        self._started: dict[Path, float] = {}

    def downloading(self) -> AbstractContextManager[Any]:
        """Show downloads while the context lasts, here none; it yields the callback for them."""
        return nullcontext()

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


class LiveDisplay(Display):
    """A bar for each run that is active, and one for the study; what fails is said above them."""

    def downloading(self) -> AbstractContextManager[Any]:
        """Show one bar per file."""
        return download_bar(self._console)

    @contextmanager
    def showing(self, tasks: Sequence[Task], done: int) -> Iterator[None]:
        """Draw the bars."""
        self._looked_at = 0.0
        widest = max((len(task.name) for task in tasks), default=0)
        bar = (
            TextColumn("{task.description}", table_column=Column(min_width=widest, no_wrap=True)),
            BarColumn(bar_width=12, table_column=Column(min_width=12)),
            MofNCompleteColumn(table_column=Column(min_width=7, no_wrap=True)),
        )
        numbers = TextColumn("{task.fields[numbers]}", table_column=Column(ratio=1, no_wrap=True))
        self._bars = Bars(*bar, numbers, console=self._console, expand=True)
        self._whole = Bars(*bar, TimeElapsedColumn(), console=self._console)
        self._rows: dict[Path, Any] = {}
        self._study = self._whole.add_task("runs", total=len(tasks), completed=done)
        with Live(Group(self._bars, self._whole), console=self._console, refresh_per_second=4):
            yield

    def happened(self, event: Event) -> None:
        """Move the bars; keep a line of what did not go well."""
        task = event.task
        if event.kind in _ACTIVE and task.path not in self._rows:
            self._rows[task.path] = self._bars.add_task(
                task.name, total=task.config.epochs, numbers=""
            )
        if event.kind in ("finished", "failed"):
            self._whole.advance(self._study)
        if event.kind not in _ACTIVE and task.path in self._rows:
            self._bars.remove_task(self._rows.pop(task.path))
        if event.kind in ("failed", "retried", "waiting"):
            self._print(f"{event.kind} {task.name}: {event.detail}")

    def refresh(self) -> None:
        """Look at the records of the runs, not more often than a person can read."""
        if time.monotonic() - self._looked_at < _SECONDS_BETWEEN_LOOKS:
            return
        self._looked_at = time.monotonic()
        for path, row in self._rows.items():
            record = last_record(path)
            watched = {key: record[key] for key in _WATCHED if key in record}
            self._bars.update(row, completed=record.get("epoch", 0), numbers=describe(watched))


def choose_display(console: Console) -> Display:
    """Return the display that suits a console."""
    return LiveDisplay(console) if console.is_terminal else Display(console)


def last_record(run: Path) -> dict[str, Any]:
    """Return the numbers of the last epoch of a run, none if there is no epoch that can be read."""
    try:
        lines = (run / METRICS).read_bytes().split(b"\n")[:-1]
        record = json.loads(lines[-1]) if lines else {}
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in record.items() if isinstance(value, int | float)}
