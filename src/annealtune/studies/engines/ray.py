"""The engine for several machines: Ray finds room for each run and starts it there.

A run is the same ``annealtune train`` in the same run directory as with the local engine, so its
results are the same to the last bit and a study may change engines. Ray is told nothing about
epochs, scores or checkpoints: it is given a command line and returns an exit code.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from annealtune.errors import ConfigError, RunError, RunStoppedError
from annealtune.studies.engines import Observer
from annealtune.studies.engines.local import PROGRAM, SECONDS_BETWEEN_LOOKS, popen, run_processes
from annealtune.studies.plan import Task
from annealtune.studies.records import is_locked
from annealtune.studies.run import cores
from annealtune.training.provenance import describe_provenance
from annealtune.training.stopping import StopRequest, handlers_restored
from annealtune.training.storage.files import locked

_LEAST_OBJECT_STORE = 80 * 2**20  # nothing of size goes through it
_SECONDS_TO_CONNECT = 10
_TOKEN = secrets.token_hex(32)  # of this process: Ray reads it once


class RayEngine:
    """Runs ``annealtune train`` where Ray has room for it.

    Args:
        address: ``host:port`` of a cluster that is running, or ``auto``; this machine must be part
            of it. None starts one of this machine alone, which only it can reach and which ends
            with the study.
        cpus: of one run.
        gpus: of one run, at most 1; None: 1 if the config asks for one, or takes what there is and
            the cluster has any.
        jobs: runs at a time; None: as many as there is room for.
        program: what starts a run; None: the module, by the Python of the worker.

    Raises:
        ConfigError: if Ray is missing.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        cpus: int = 1,
        gpus: float | None = None,
        jobs: int | None = None,
        program: Sequence[str] | None = None,
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ConfigError("engine = 'ray': Ray is not installed; pip install 'annealtune[ray]'")
        self._address = address
        self._cpus = cpus
        self._gpus = gpus
        self._jobs = jobs
        self._program = program

    def run(self, tasks: Sequence[Task], observer: Observer, stop: StopRequest) -> None:
        """Run tasks that are not done; see `Engine.run`.

        Raises:
            RunError: also if the cluster cannot be reached, has no machine that is large enough,
                does not see the run directories, or has other versions.
        """
        if all(task.is_done() for task in tasks):
            return
        here = held_site(tasks[0].path.parent, self._program)
        with _connected(self._address) as ray, here as site:
            device = tasks[0].config.device
            gpus = self._gpus
            if gpus is None and device == "auto":
                gpus = min(1.0, ray.cluster_resources().get("GPU", 0.0))
            elif gpus is None:
                gpus = float(device.startswith("cuda"))
            room = _room(ray, self._cpus, gpus)
            remote = ray.remote(num_cpus=self._cpus, num_gpus=gpus, max_retries=0)(train)

            def start(words: list[str], log: Path, environment: dict[str, str]) -> _RemoteRun:
                if gpus == 0:  # Ray itself would let it see all of them
                    environment = {**environment, "CUDA_VISIBLE_DEVICES": ""}
                return _RemoteRun(ray, remote, site, words, str(log), environment)

            run_processes(tasks, observer, stop, start=start, most=self._jobs or room)


class _RemoteRun:
    """A run on some machine, started as soon as there is room for it; see `Process`."""

    def __init__(self, ray: ModuleType, remote: Any, site: Site, *arguments: Any) -> None:
        self._ray = ray
        self._reference = remote.remote(site, *arguments)
        self._ending: int | str | None = None

    def poll(self) -> int | str | None:
        """Return its exit code, or in words how it was lost; None while it runs.

        Raises:
            RunError: if its machine cannot be used.
        """
        if self._ending is None and self._ray.wait([self._reference], timeout=0)[0]:
            try:
                self._ending = self._ray.get(self._reference)
            except self._ray.exceptions.RayError as error:
                self._ending = f"Ray: {_told(error)}"
            else:
                if isinstance(self._ending, str):
                    raise RunError(f"Ray: {self._ending}")
        return self._ending

    def terminate(self) -> None:
        """Ask it to save and leave, or take it off the queue."""
        self._ray.cancel(self._reference)

    def wait(self) -> None:
        """Wait until it has left, or nobody can tell any more."""
        with contextlib.suppress(RunError):  # what is lost now is found by the next start
            while self.poll() is None:
                time.sleep(SECONDS_BETWEEN_LOOKS)


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[ModuleType]:
    """Start Ray or connect to it, and leave or end it afterwards.

    Raises:
        ConfigError: if the address is of the wrong form.
        RunError: if there is no Ray at the address, or it refuses us.
    """
    options: dict[str, Any] = {"address": address}
    settings = {"RAY_USAGE_STATS_ENABLED": "0"}
    if address is None:
        options = {
            "address": "local",
            "include_dashboard": False,
            "num_cpus": cores(),
            "object_store_memory": _LEAST_OBJECT_STORE,
        }
        settings |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": _TOKEN,
            # Ray's name for what it does on macOS: it listens on the loopback device alone.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }
    else:
        _check_address(address)
    os.environ.update(settings)  # read when Ray is first imported, and by all that it starts
    import ray

    try:
        with handlers_restored():  # Ray sets its own for SIGTERM, which ends the program
            ray.init(**options, log_to_driver=False, logging_level="ERROR")
    except SystemExit:
        ray.shutdown()
        raise RunStoppedError(signal.SIGTERM, "SIGTERM: no run was started") from None
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        ray.shutdown()
        raise RunError(f"Ray: {address or 'cannot be started'}: {_told(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Look whether somebody answers at an address: Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        place = (host.strip("[]"), int(port))
        socket.create_connection(place, timeout=_SECONDS_TO_CONNECT).close()
    except ValueError:
        raise ConfigError(
            f"address = {address!r}: must be auto or HOST:PORT of the head, such as 10.0.0.1:6379"
        ) from None
    except OSError as error:
        raise RunError(
            f"Ray: {address} cannot be reached: {error.strerror or error}; is the head running "
            "(ray start --head) and this its address?"
        ) from error


def _room(ray: ModuleType, cpus: float, gpus: float) -> int:
    """Return how many runs fit into the machines of the cluster.

    Raises:
        RunError: if there is no machine on which one fits.
    """
    wanted = {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount}
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = 0
    for machine in machines:
        shares = [machine.get(name, 0) / amount for name, amount in wanted.items()]
        room += math.floor(min(shares) + 1e-9)  # ten tenths are one
    if room == 0:
        has = [f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in machines]
        raise RunError(
            f"Ray: a run needs {cpus:g} CPUs and {gpus:g} GPUs, and no machine of the cluster has "
            f"that much: {'; '.join(has)}; give smaller --cpus or --gpus, or add a machine"
        )
    return room


def _told(error: BaseException) -> str:
    """Return what an error of Ray says, without the trace of another process."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    traced = any(line.startswith("Traceback") or "ray::" in line for line in lines)
    return (lines[-1] if traced else " ".join(lines))[:500] or type(error).__name__


# --- On the machine of a worker ---


class Site(NamedTuple):
    """Where a run belongs: what every machine must see and have."""

    directory: str  # relative names of the config begin here
    probe: str  # a directory that the study holds the lock of
    provenance: dict[str, str]
    program: Sequence[str] | None  # None: the module, by the Python of the worker


@contextlib.contextmanager
def held_site(runs: Path, program: Sequence[str] | None = None) -> Iterator[Site]:
    """Describe this machine, and hold a lock beside the runs for the others to run into.

    Raises:
        RunError: if the disk refuses.
    """
    probe = runs / ".probe"
    with locked(probe):
        try:
            yield Site(str(Path.cwd()), str(probe), describe_provenance(), program)
        finally:
            shutil.rmtree(probe, ignore_errors=True)


def train(site: Site, words: list[str], log: str, environment: dict[str, str]) -> int | str:
    """Run ``annealtune train`` and return its exit code, or in words why this machine cannot."""
    problem = problem_of(site)
    if problem:
        return f"{socket.gethostname()}: {problem}"
    file = Path(site.directory, log)
    process = popen(site.program or PROGRAM, words, file, environment, site.directory)
    try:
        while process.poll() is None:
            time.sleep(SECONDS_BETWEEN_LOOKS)
    except KeyboardInterrupt:  # how Ray cancels
        process.terminate()
        process.wait()
    return process.returncode


def problem_of(site: Site) -> str:
    """Return why this machine would not do the same as that of the study, empty if it would."""
    probe = Path(site.directory, site.probe)
    if not probe.exists():
        return f"does not see {probe.parent}, where the runs are; use shared storage"
    if not is_locked(probe):
        return (
            f"does not see the lock that the study holds in {probe.parent}; two processes could "
            "write to one run there: use storage that shares locks"
        )
    there = describe_provenance()
    differing = [
        f"{name} {there.get(name, 'unknown')} instead of {here}"
        for name, here in site.provenance.items()
        if there.get(name) != here
    ]
    if differing:
        return (
            f"has other versions, and would give other results: {', '.join(differing)}; install "
            "the same on all machines"
        )
    return ""
