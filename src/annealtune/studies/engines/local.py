"""The default engine: a process on this machine for each run, `jobs` of them at a time."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import filelock

from annealtune.errors import RunError, RunStoppedError
from annealtune.studies.directory import acquire
from annealtune.studies.engines import MOST_ATTEMPTS, Event, EventKind, Observer, Task
from annealtune.studies.records import FAILURE_FILE, LOG_FILE
from annealtune.training.stopping import StopRequest
from annealtune.training.storage.files import explained, write_atomically

PROGRAM = (sys.executable, "-m", "annealtune")
SECONDS_BETWEEN_LOOKS = 0.05
_LONGEST_REASON = 500
# A signal from the terminal reaches only the study, which then tells each run once to save and
# leave.
_OWN_GROUP = 0


class LocalEngine:
    """Runs ``annealtune train`` in processes.

    A process that outlives a killed study goes on writing to its run directory and holds its lock;
    a study that is started again waits for it instead of starting a second writer.
    """

    def __init__(self, jobs: int, program: Sequence[str] = PROGRAM) -> None:
        self.jobs = jobs
        self._program = tuple(program)

    def run(self, tasks: Sequence[Task], observer: Observer, stop: StopRequest) -> None:
        """Run tasks that are not done; see `Engine.run`."""
        waiting = deque(task for task in tasks if not task.is_done())
        active: list[_Job] = []
        try:
            while waiting or active:
                while waiting and len(active) < self.jobs and stop.signal_number is None:
                    active.append(_Job(waiting.popleft(), self._program, observer))
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
    """A task while it runs: its attempts, or the wait for another study's process to end."""

    def __init__(self, task: Task, program: Sequence[str], observer: Observer) -> None:
        self.task = task
        self._program = program
        self._observer = observer
        self._attempts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        with explained(task.path):
            task.path.mkdir(parents=True, exist_ok=True)
        if _is_locked(task.path):
            self._tell("waiting", "another process is working in its directory")
        else:
            self._start()

    def is_over(self) -> bool:
        """Go on to the next attempt if one is due; tell whether none is."""
        if self._process is None:
            if _is_locked(self.task.path):
                return False
            if not self.task.is_done():
                self._start()
                return False
            self._tell("finished")
            return True
        code = self._process.poll()
        if code is None:
            return False
        self._process = None
        if code == 0 and self.task.is_done():
            self._tell("finished")
            return True
        return self._has_crashed(code)

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

    def _has_crashed(self, code: int) -> bool:
        reason = self._reason(code)
        if self._attempts < MOST_ATTEMPTS:
            self._tell("retried", reason)
            self._start()
            return False
        self.task.give_up(reason, self._attempts)
        self._tell("failed", reason)
        return True

    def _start(self) -> None:
        path, config = self.task.path, self.task.config
        self._attempts += 1
        experiment = path / "experiment.toml"
        write_atomically(experiment, config.to_toml().encode())
        words = ["train", str(experiment), "--out", str(path), "--resume-or-start"]
        command = [*self._program, *words]
        if self.task.stop_after is not None:
            command += ["--stop-after", str(self.task.stop_after)]
        environment = dict(os.environ)
        if config.threads is not None:  # for what is computed before the config is known
            environment["OMP_NUM_THREADS"] = str(config.threads)
        with explained(path):
            (path / FAILURE_FILE).unlink(missing_ok=True)
            with (path / LOG_FILE).open("ab") as log:
                log.write(f"--- attempt {self._attempts} ---\n".encode())
                log.flush()
                self._log_start = log.tell()
                self._process = _popen(command, log, environment)
        self._tell("started")

    def _reason(self, code: int) -> str:
        """Return why an attempt failed: the last line of its log, or how it ended."""
        if code < 0:
            ending = f"killed by {_signal_name(-code)}"
        else:
            ending = f"ended with code {code}" if code else "ended without a result"
        last = _last_line(self.task.path / LOG_FILE, self._log_start)
        return f"{ending}; the last line was: {last}" if code <= 0 and last else last or ending

    def _tell(self, kind: EventKind, detail: str = "") -> None:
        self._observer.happened(Event(kind, self.task, detail))


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
