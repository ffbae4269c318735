"""Who runs the runs of a study. An engine starts processes and reports; everything else is ours.

Resuming, failures and the plan are files in the study directory, so a study begun with one engine
can be continued with another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from annealtune.studies.results import FAILURE_FILE
from annealtune.training.config import RunConfig
from annealtune.training.disk import write_json
from annealtune.training.stopping import StopRequest

MOST_ATTEMPTS = 2


@dataclasses.dataclass(frozen=True)
class Task:
    """One run that is to be brought to its end.

    Attributes:
        method: the label of its method.
        seed: its value of the seed that is varied.
        config: what to run.
        path: the run directory.
        stop_after: save and leave after so many epochs, None to go to the end.
    """

    method: str
    seed: int
    config: RunConfig
    path: Path
    stop_after: int | None = None

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"{self.method} seed {self.seed}"

    @property
    def epochs(self) -> int:
        """How many epochs it is to reach."""
        return min(self.config.epochs, self.stop_after or self.config.epochs)

    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        if (self.path / "result.json").exists():
            return True
        return self.epochs < self.config.epochs and self.epochs_done() >= self.epochs

    def has_failed(self) -> bool:
        """Whether it was given up earlier."""
        return (self.path / FAILURE_FILE).exists()

    def epochs_done(self) -> int:
        """Return how many epochs are recorded."""
        try:
            return (self.path / "metrics.jsonl").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def give_up(self, reason: str, attempts: int) -> None:
        """Write down that and why it has failed.

        Raises:
            RunError: if the disk refuses.
        """
        write_json(self.path / FAILURE_FILE, {"reason": reason, "attempts": attempts})


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to a task.

    Attributes:
        kind: what; waiting means that another process is working in its directory.
        task: to whom.
        detail: why, for those that did not go well.
    """

    kind: Literal["started", "waiting", "retried", "finished", "failed", "stopped"]
    task: Task
    detail: str = ""


class Observer(Protocol):
    """Is told what happens."""

    def happened(self, event: Event) -> None:
        """Take note of an event."""

    def refresh(self) -> None:
        """Look after what runs; called several times a second."""


class Engine(Protocol):
    """Brings tasks to their end."""

    def run(self, tasks: Sequence[Task], observer: Observer, stop: StopRequest) -> None:
        """Run tasks that are not done; a crash is tried again once and then given up.

        Args:
            tasks: in the order in which they are to be started.
            observer: is told what happens.
            stop: asked all the time whether to save everything and leave.

        Raises:
            RunError: if the engine itself cannot go on.
            RunStoppedError: if it was asked to stop; every run can be continued.
        """
