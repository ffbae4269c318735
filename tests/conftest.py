"""The program warmed up, a tiny study for it to run, and a browser for what it makes."""

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tools.browser import CHROMIUM, Browser

SOURCE = Path(__file__).parents[1] / "src"
WARM_PROGRAM = Path(__file__).parent / "training" / "warm_program.py"

# 180 images to train on, 6 steps an epoch.
TINY = """
model = "mlp-w8"
train_size = 200
batch_size = 30
epochs = 3
threads = 1
"""

# Inside the warm program a study forks its runs from itself: torch is imported already.
FORK_RUNS = """
import os, signal, sys, traceback
import annealtune.cli
from annealtune.studies.engines import local

class Forked:
    def __init__(self, program, words, log, environment):
        self.returncode = None
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            os.setpgid(0, 0)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            file = os.open(log, os.O_WRONLY | os.O_APPEND)
            os.dup2(file, 1)
            os.dup2(file, 2)
            os.closerange(3, 256)
            sys.stdout = open(1, "w", closefd=False)
            sys.stderr = open(2, "w", closefd=False, buffering=1)
            sys.argv = ["annealtune", *words]
            annealtune.cli.main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self):
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def terminate(self):
        os.kill(self.pid, signal.SIGTERM)

local.popen = Forked
"""


def pytest_collection_finish():
    """Leave what is imported out of walks over all objects: SelfTuner makes one in every run."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def place():
    """An empty directory, in memory where that exists: runs force every file to disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


@pytest.fixture(scope="session")
def _warm_program():
    command = [sys.executable, "-W", "error", str(WARM_PROGRAM)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:

        def ask(request):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        assert json.loads(process.stdout.readline()) == "ready"
        yield ask
        process.stdin.close()


@pytest.fixture(scope="session")
def fork_runs():
    """What makes a study in the warm program start its runs there too."""
    return FORK_RUNS


class Command:
    """A command that is running."""

    def __init__(self, ask, request):
        self._ask, self._request = ask, request
        self.pid = ask(request)

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill_all(self) -> None:
        """Kill the study and its runs at one moment, as a power cut would."""
        os.kill(self.pid, signal.SIGSTOP)
        runs = psutil.Process(self.pid).children(recursive=True)
        os.kill(self.pid, signal.SIGKILL)
        for run in runs:
            with contextlib.suppress(psutil.NoSuchProcess):
                run.kill()
        psutil.wait_procs(runs, timeout=10)

    def wait(self) -> SimpleNamespace:
        """Wait for its end; a code below zero is the signal that killed it."""
        code = self._ask({"wait": self.pid})
        paths = (Path(self._request[name]) for name in ("stdout", "stderr"))
        # One that is killed at once has opened neither.
        out, err = (path.read_text() if path.exists() else "" for path in paths)
        return SimpleNamespace(code=code, out=out, err=err)


@pytest.fixture
def default_setup():
    """What every command does first."""
    return FORK_RUNS


@pytest.fixture
def start(_warm_program, place, default_setup):
    """Starts ``annealtune`` with the given words, in ``place``, and does not wait for it."""
    started = []

    def start(*arguments, setup: str | None = None) -> Command:
        number = len(started)
        request = {
            "arguments": [str(argument) for argument in arguments],
            "setup": default_setup if setup is None else setup,
            "directory": str(place),
            "stdout": str(place / f".stdout-{number}"),
            "stderr": str(place / f".stderr-{number}"),
        }
        started.append(Command(_warm_program, request))
        return started[-1]

    return start


@pytest.fixture
def program(start):
    """Runs ``annealtune`` to its end."""
    return lambda *arguments, setup=None: start(*arguments, setup=setup).wait()


@pytest.fixture
def tiny(place):
    """The experiment file of a study whose runs take a fraction of a second."""
    path = place / "tiny.toml"
    path.write_text(TINY)
    return path


def without_seconds(record):
    return {key: value for key, value in record.items() if not key.endswith("_seconds")}


@pytest.fixture
def outcome():
    """Everything the runs of a study have produced, clock readings apart."""

    def outcome(study: Path) -> dict:
        found = {}
        for run in sorted((study / "runs").iterdir()):
            lines = (run / "metrics.jsonl").read_text().splitlines()
            found[run.name] = {
                "files": sorted(path.name for path in run.iterdir()),
                "metrics": [without_seconds(json.loads(line)) for line in lines],
                "result": without_seconds(json.loads((run / "result.json").read_text())),
                "config": (run / "config.toml").read_text().partition("[environment]")[0],
                "weights": (run / "best.safetensors").read_bytes(),
                "best": (run / "best.json").read_text(),
                "moves": (run / "moves.jsonl").read_text() if "sgd-sa" in run.name else None,
            }
        return found

    return outcome


@pytest.fixture(scope="session")
def browser():
    """A browser for all tests; they are skipped where there is none."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium on the PATH")
    with Browser() as browser:
        yield browser
