"""Who runs the runs of a study. An engine starts processes and reports what happens, no more.

Resuming, failures and the plan are files in the study directory, so a study begun with one engine
can be continued with another.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from annealtune.studies.records import FAILURE_FILE
from annealtune.training.config import RunConfig
from annealtune.training.stopping import StopRequest
from annealtune.training.storage.seal import METRICS, RESULT_FILE

EventKind = Literal["started", "waiting", "retried", "finished", "failed", "stopped"]


@dataclasses.dataclass(frozen=True)
class Task:
    """One run that is to be brought to its end.

    Attributes:
        method: the label of its method.
        seed: its value of the seed that is varied.
        config: what to run.
        path: the run directory.
    """

    method: str
    seed: int
    config: RunConfig
    path: Path

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"{self.method} seed {self.seed}"

    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        return (self.path / RESULT_FILE).exists()

    def is_left(self) -> bool:
        """Whether it is neither done nor given up earlier."""
        return not self.is_done() and not (self.path / FAILURE_FILE).exists()

    def epochs_done(self) -> int:
        """Return how many epochs are recorded."""
        try:
            return (self.path / METRICS).read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to a task.

    Attributes:
        kind: what; waiting means that another process is working in its directory.
        task: to whom.
        detail: why, for those that did not go well.
    """

    kind: EventKind
    task: Task
    detail: str = ""


class Observer(Protocol):
    """Is told what happens."""

    def happened(self, event: Event) -> None:
        """Take note of an event."""

    def refresh(self) -> None:
        """Is called several times a second."""


class Engine(Protocol):
    """Brings tasks to their end."""

    def run(self, tasks: Sequence[Task], observer: Observer, stop: StopRequest) -> None:
        """Run tasks that are not done; a crash is tried again once and then given up.

        Args:
            tasks: in the order in which they are to be started.
            observer: is told what happens.
            stop: asked all the time whether to save everything and leave.

        Raises:
            RunError: if a process cannot be started, or the disk refuses.
            RunStoppedError: if it was asked to stop; every run can be continued.
        """
