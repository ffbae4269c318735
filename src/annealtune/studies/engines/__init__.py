"""Who runs the runs of a study. An engine starts processes and reports what happens, no more.

Resuming, failures and the plan are files in the study directory, so a study begun with one engine
can be continued with another.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from annealtune.studies.plan import Task
from annealtune.training.stopping import StopRequest

# Waiting means that another process is working in the directory of a run.
EventKind = Literal["started", "waiting", "retried", "finished", "failed", "stopped"]
# Is told what happened to which task, and why, where that did not go well.
Observer = Callable[[EventKind, Task, str], None]


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
