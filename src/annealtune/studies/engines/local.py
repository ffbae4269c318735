"""The default engine: a process on this machine for each run, `jobs` of them at a time."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from annealtune.errors import RunError
from annealtune.studies.engines import Observer, Task
from annealtune.studies.engines.processes import run_processes
from annealtune.training.stopping import StopRequest

PROGRAM = (sys.executable, "-m", "annealtune")
# A signal from the terminal reaches only the study, which then tells each run once to save and
# leave.
_OWN_GROUP = 0


class LocalEngine:
    """Runs ``annealtune train`` in processes on this machine."""

    def __init__(self, jobs: int, program: Sequence[str] = PROGRAM) -> None:
        self.jobs = jobs
        self._program = tuple(program)

    def run(self, tasks: Sequence[Task], observer: Observer, stop: StopRequest) -> None:
        """Run tasks that are not done; see `Engine.run`."""
        run_processes(tasks, observer, stop, start=self._start, most=self.jobs)

    def _start(
        self, words: list[str], log: Path, environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            return _popen([*self._program, *words], file, {**os.environ, **environment})


def _popen(
    command: list[str], log: IO[bytes], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            process_group=_OWN_GROUP,
        )
    except OSError as error:
        raise RunError(f"{command[0]}: cannot be started: {error.strerror or error}") from error
