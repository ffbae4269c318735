"""The default engine: a process on this machine for each run, `jobs` of them at a time.

`run_processes` is what all engines share. It takes what starts ``annealtune train`` somewhere; see
`Process`.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from annealtune.errors import RunError, RunStoppedError
from annealtune.studies.engines import EventKind, Observer
from annealtune.studies.plan import Task
from annealtune.studies.records import FAILURE_FILE, LOG_FILE, is_locked
from annealtune.training.stopping import StopRequest
from annealtune.training.storage.files import explained, write_atomically, write_json

PROGRAM = (sys.executable, "-m", "annealtune")
SECONDS_BETWEEN_LOOKS = 0.05
_MOST_ATTEMPTS = 2
_LONGEST_REASON = 500


class LocalEngine:
    """Runs ``annealtune train`` in processes on this machine."""

    def __init__(self, jobs: int, program: Sequence[str] = PROGRAM) -> None:
        self.jobs = jobs
        self._program = tuple(program)

    def run(self, tasks: Sequence[Task], observer: Observer, stop: StopRequest) -> None:
        """Run tasks that are not done; see `Engine.run`."""
        run_processes(tasks, observer, stop, start=partial(popen, self._program), most=self.jobs)


def popen(
    program: Sequence[str],
    words: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    directory: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program that appends all it prints to a log.

    Args:
        program: its first words.
        words: the others.
        log: the file.
        environment: what must be said besides what this process was told.
        directory: where it works; None: here.

    Raises:
        RunError: if it cannot be started.
    """
    with log.open("ab") as file:
        try:
            return subprocess.Popen(
                [*program, *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={**os.environ, **environment},
                # A signal from the terminal reaches only the study, which then tells each run once.
                process_group=0,
            )
        except OSError as error:
            raise RunError(f"{program[0]}: cannot be started: {error.strerror or error}") from error


class Process(Protocol):
    """A started ``annealtune train``. `subprocess.Popen` is one."""

    def poll(self) -> int | str | None:
        """Return its exit code, or in words how it was lost; None while it runs."""

    def terminate(self) -> None:
        """Ask it to save and leave; do not wait for it."""

    def wait(self) -> object:
        """Wait until it has left."""


# Takes the words after ``annealtune``, the file to append all output to, and what the environment
# must say besides.
Start = Callable[[list[str], Path, dict[str, str]], Process]


def run_processes(
    tasks: Sequence[Task], observer: Observer, stop: StopRequest, *, start: Start, most: int
) -> None:
    """Run tasks that are not done; see `Engine.run`.

    A process that outlives a killed study goes on writing to its run directory and holds its lock;
    it is waited for instead of starting a second writer.

    Args:
        tasks: in the order in which they are to be started.
        observer: is told what happens.
        stop: asked all the time whether to save everything and leave.
        start: starts a process.
        most: how many there are at a time.
    """
    waiting = deque(task for task in tasks if not task.is_done())
    active: list[_Job] = []
    try:
        while waiting or active:
            while waiting and len(active) < most and stop.signal_number is None:
                active.append(_Job(waiting.popleft(), start, observer))
            if stop.signal_number is not None:
                _stop_all(active)
                name = signal.Signals(stop.signal_number).name
                done = f"{sum(task.is_done() for task in tasks)} of {len(tasks)} runs are done"
                raise RunStoppedError(
                    stop.signal_number, f"{name}: saved, {done}; the same command goes on from here"
                )
            active = [job for job in active if not job.is_over()]
            if active:
                time.sleep(SECONDS_BETWEEN_LOOKS)
    finally:
        _stop_all(active)


class _Job:
    """A task while it runs: its attempts, and waits for a process of another study to end."""

    def __init__(self, task: Task, start: Start, observer: Observer) -> None:
        self.task = task
        self._start_process = start
        self._observer = observer
        self._attempts = 0
        self._failure = ""  # why the last attempt failed
        self._is_waiting = False
        self._process: Process | None = None
        self._log_start = 0
        with explained(task.path):
            task.path.mkdir(parents=True, exist_ok=True)
        self._go_on()

    def is_over(self) -> bool:
        """Go on to the next attempt if one is due; tell whether none is."""
        if self._process is not None:
            ending = self._process.poll()
            if ending is None:
                return False
            self._process = None
            if ending == 0 and self.task.is_done():
                self._tell("finished")
                return True
            self._failure = self._reason(ending)
        return self._go_on()

    def tell_to_stop(self) -> None:
        """Ask the process to save and leave; do not wait for it."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def wait(self) -> None:
        """Wait until the process has left."""
        if self._process is not None:
            self._process.wait()
            self._process = None
            self._tell("finished" if self.task.is_done() else "stopped")

    def _go_on(self) -> bool:
        """Do what is due while no process runs; tell whether the task is over."""
        with explained(self.task.path):
            is_held = is_locked(self.task.path)
        if is_held:
            if not self._is_waiting:
                self._tell("waiting", "another process is working in its directory")
            self._is_waiting = True
            return False
        if self._is_waiting and self.task.is_done():
            self._tell("finished")
            return True
        self._is_waiting = False
        if self._attempts == _MOST_ATTEMPTS:
            failure = {"reason": self._failure, "attempts": self._attempts}
            write_json(self.task.path / FAILURE_FILE, failure)
            self._tell("failed", self._failure)
            return True
        if self._attempts > 0:
            self._tell("retried", self._failure)
        self._start()
        return False

    def _start(self) -> None:
        path, config = self.task.path, self.task.config
        self._attempts += 1
        experiment = path / "experiment.toml"
        write_atomically(experiment, config.to_toml().encode())
        words = ["train", str(experiment), "--out", str(path), "--resume-or-start"]
        environment = {}
        if config.threads is not None:  # for what is computed before the config is known
            environment["OMP_NUM_THREADS"] = str(config.threads)
        log = path / LOG_FILE
        with explained(path):
            (path / FAILURE_FILE).unlink(missing_ok=True)
            with log.open("ab") as file:
                file.write(f"--- attempt {self._attempts} ---\n".encode())
                self._log_start = file.tell()
            self._process = self._start_process(words, log, environment)
        self._tell("started")

    def _reason(self, ending: int | str) -> str:
        """Return why an attempt failed: the last line of its log, or how it ended."""
        if isinstance(ending, str):
            return ending
        if ending < 0:
            words = f"killed by {signal.Signals(-ending).name}"
        else:
            words = f"ended with code {ending}" if ending else "ended without a result"
        last = _last_line(self.task.path / LOG_FILE, self._log_start)
        return f"{words}; the last line was: {last}" if ending <= 0 and last else last or words

    def _tell(self, kind: EventKind, detail: str = "") -> None:
        self._observer(kind, self.task, detail)


def _stop_all(jobs: list[_Job]) -> None:
    """Let every process save and leave, all at the same time."""
    for job in jobs:
        job.tell_to_stop()
    for job in jobs:
        job.wait()
    jobs.clear()


def _last_line(log: Path, start: int) -> str:
    """Return the last line with something in it that was written from `start` on."""
    written = log.read_bytes()[start:].decode("utf-8", "replace")
    for line in reversed(written.splitlines()):
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line).strip()  # without colours
        if text:
            return text.removeprefix("annealtune: ")[:_LONGEST_REASON]
    return ""
