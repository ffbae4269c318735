"""Tasks as processes, wherever those run: so many at a time, each tried again once, none twice.

An engine says only how ``annealtune train`` is started and looked after; see `Process`.
"""

import re
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import filelock

from annealtune.errors import RunStoppedError
from annealtune.studies.directory import acquire
from annealtune.studies.engines import MOST_ATTEMPTS, Event, EventKind, Observer, Task
from annealtune.studies.records import FAILURE_FILE, LOG_FILE
from annealtune.training.stopping import StopRequest
from annealtune.training.storage.files import explained, write_atomically

SECONDS_BETWEEN_LOOKS = 0.05
_LONGEST_REASON = 500


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
                _tell_to_stop(active)
                raise _stopped(stop.signal_number, tasks)
            active = [job for job in active if not job.is_over()]
            observer.refresh()
            if active:
                time.sleep(SECONDS_BETWEEN_LOOKS)
    finally:
        _tell_to_stop(active)


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
        """Do what is due while there is no process of ours; tell whether all is over."""
        if _is_locked(self.task.path):
            if not self._is_waiting:
                self._tell("waiting", "another process is working in its directory")
            self._is_waiting = True
            return False
        if self._is_waiting and self.task.is_done():
            self._tell("finished")
            return True
        self._is_waiting = False
        if self._attempts == MOST_ATTEMPTS:
            self.task.give_up(self._failure, self._attempts)
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
        if self.task.stop_after is not None:
            words += ["--stop-after", str(self.task.stop_after)]
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
            words = f"killed by {_signal_name(-ending)}"
        else:
            words = f"ended with code {ending}" if ending else "ended without a result"
        last = _last_line(self.task.path / LOG_FILE, self._log_start)
        return f"{words}; the last line was: {last}" if ending <= 0 and last else last or words

    def _tell(self, kind: EventKind, detail: str = "") -> None:
        self._observer.happened(Event(kind, self.task, detail))


def _tell_to_stop(jobs: list[_Job]) -> None:
    """Let every process save and leave, all at the same time."""
    for job in jobs:
        job.tell_to_stop()
    for job in jobs:
        job.wait()
    jobs.clear()


def _stopped(signal_number: int, tasks: Sequence[Task]) -> RunStoppedError:
    done = sum(task.is_done() for task in tasks)
    return RunStoppedError(
        signal_number,
        f"{_signal_name(signal_number)}: saved, {done} of {len(tasks)} runs are done; the same "
        "command goes on from here",
    )


def _is_locked(run: Path) -> bool:
    """Tell whether a process is working in a run directory."""
    lock = filelock.FileLock(run / ".lock", timeout=0)
    with explained(run):
        is_ours = acquire(lock)
    if is_ours:
        lock.release()
    return not is_ours


def _last_line(log: Path, start: int) -> str:
    """Return the last line with something in it that was written from `start` on."""
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - 16_384))
        lines = file.read().decode("utf-8", "replace").splitlines()
    for line in reversed(lines):
        text = " ".join(
            re.sub(r"\x1b\[[0-9;]*[A-Za-z]|[^\x20-\x7e\xa0-\U0010ffff]", " ", line).split()
        )
        if text:
            return text.removeprefix("annealtune: ")[:_LONGEST_REASON]
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
