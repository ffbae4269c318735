"""The engine for several machines: Ray finds room for each run and starts it there.

A run is the same ``annealtune train`` in the same run directory as with the local engine, so its
results are the same to the last bit and a study may change engines. Ray is told nothing about
epochs, scores or checkpoints, and nothing of ours goes through it but a command line and an exit
code.
"""

import contextlib
import functools
import os
import secrets
import signal
from collections.abc import Iterator, Sequence
from importlib import metadata
from types import ModuleType
from typing import Any

from annealtune.errors import ConfigError, RunError, RunStoppedError
from annealtune.studies.directory import cores
from annealtune.studies.engines import Observer, Task
from annealtune.studies.engines.processes import run_processes
from annealtune.studies.engines.ray_cluster import Cluster, told, unreachable
from annealtune.studies.engines.remote import held_site
from annealtune.training.stopping import StopRequest, handlers_restored

OLDEST = (2, 60)  # what was tried; token authentication came with 2.52
_LEAST_OBJECT_STORE = 80 * 2**20  # nothing of size goes through it


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
        ConfigError: if Ray is missing or too old.
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
        _require_ray()
        self._address = address
        self._cpus = cpus
        self._gpus = gpus
        self._jobs = jobs
        self._program = program

    def run(self, tasks: Sequence[Task], observer: Observer, stop: StopRequest) -> None:
        """Run tasks that are not done; see `Engine.run`.

        Raises:
            RunError: also if the cluster cannot be reached or is lost, has no machine that is large
                enough, does not see the run directories, or has other versions.
        """
        if all(task.is_done() for task in tasks):
            return
        site = held_site(tasks[0].path.parent, self._program)
        with _connected(self._address) as ray, site as here:
            device = tasks[0].config.device
            cluster = Cluster(ray, here, cpus=self._cpus, gpus=self._gpus, device=device)
            most = self._jobs or cluster.room()
            run_processes(tasks, observer, stop, start=cluster.start, most=most)


def _require_ray() -> None:
    line = "pip install 'annealtune[ray]'"
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        raise ConfigError(f"engine = 'ray': Ray is not installed; {line}") from None
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ConfigError(f"engine = 'ray': needs Ray {oldest} or later, got {version}; {line}")


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
        settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _token()}
    else:
        settings["RAY_NUM_REDIS_GET_RETRIES"] = "2"  # of 40 s each, by default 20
    host = "localhost" if address is None else _check_address(address)
    if host in ("localhost", "127.0.0.1", "::1"):
        # Ray's name for what it does on macOS: it listens on the loopback device alone.
        settings["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
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
        raise RunError(f"Ray: {address or 'cannot be started'}: {told(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


@functools.cache  # Ray reads it once in a process, and a hunt starts Ray for every rung
def _token() -> str:
    return secrets.token_hex(32)


def _check_address(address: str) -> str:
    """Look whether somebody answers at an address and return its host, empty for auto."""
    if address == "auto":
        return ""
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdigit():
        raise ConfigError(
            f"address = {address!r}: must be auto or HOST:PORT of the head, such as 10.0.0.1:6379; "
            "start the study on a machine of the cluster"
        )
    problem = unreachable((host.strip("[]"), int(port)))
    if problem:
        raise RunError(
            f"Ray: {address} cannot be reached: {problem}; is the head running (ray start --head) "
            "and this its address?"
        )
    return host.strip("[]")
