"""The machines of a Ray cluster: whether they will do and are still there, and runs on them.

Ray itself is handed over: see `annealtune.studies.engines.ray`, the one file that imports it.
"""

import contextlib
import math
import socket
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from annealtune.errors import RunError
from annealtune.studies.engines.processes import SECONDS_BETWEEN_LOOKS
from annealtune.studies.engines.remote import Site, problem_of, train

_SECONDS_TO_CONNECT = 10
_SECONDS_TO_INSPECT = 120  # starting a worker on a busy machine takes long
_SECONDS_BETWEEN_CHECKS = 2.0


class Resources(NamedTuple):
    """What a run is given, or what a machine has."""

    cpus: float
    gpus: float

    def __str__(self) -> str:
        return f"{self.cpus:g} CPUs and {self.gpus:g} GPUs"


class Cluster:
    """The machines that Ray knows, and whether they can be used."""

    def __init__(
        self,
        ray: ModuleType,
        site: Site,
        *,
        cpus: float,
        gpus: float | None,
        device: str,
    ) -> None:
        self.ray = ray
        self._site = site
        self.is_lost = False
        self._checked_at = time.monotonic()
        here = ray.get_runtime_context()
        host, _, port = here.gcs_address.rpartition(":")
        own = next(node for node in ray.nodes() if node["NodeID"] == here.get_node_id())
        # Ray ends the whole program when these are gone for long: they are looked after here.
        self._daemons = {
            "head (GCS)": (host.strip("[]"), int(port)),
            "daemon (raylet) of this machine": (
                own["NodeManagerAddress"],
                own["NodeManagerPort"],
            ),
        }
        self._wanted = Resources(cpus, self._choose_gpus(gpus, device))
        self.room()
        self._inspect()
        self._train = ray.remote(
            num_cpus=self._wanted.cpus, num_gpus=self._wanted.gpus, max_retries=0
        )(train)

    def room(self) -> int:
        """Return how many runs fit into the cluster.

        Raises:
            RunError: if there is no machine on which one fits.
        """
        machines = self._machines()
        room = sum(_fitting(self._wanted, machine) for machine in machines)
        if room == 0:
            largest = max(machines, key=lambda machine: machine[::-1], default=Resources(0, 0))
            raise RunError(
                f"Ray: a run needs {self._wanted}, and no machine of the cluster has that much: "
                f"the largest of {len(machines)} has {largest}; give smaller --cpus or --gpus, or "
                "add a machine"
            )
        return room

    def start(self, words: list[str], log: Path, environment: dict[str, str]) -> "RemoteRun":
        """Start a run as soon as there is room for it."""
        if self._wanted.gpus == 0:  # Ray itself would let it see all of them
            environment = {**environment, "CUDA_VISIBLE_DEVICES": ""}
        return RemoteRun(self, self._train.remote(self._site, words, str(log), environment))

    def check(self) -> None:
        """Look now and then whether the cluster is still there.

        Raises:
            RunError: if it is not, or no machine is left on which a run fits.
        """
        if time.monotonic() - self._checked_at < _SECONDS_BETWEEN_CHECKS:
            return
        self._checked_at = time.monotonic()
        for name, address in self._daemons.items():
            problem = unreachable(address)
            if problem:
                self.is_lost = True
                raise RunError(
                    f"Ray: its {name} at {address[0]}:{address[1]} is gone: {problem}. Every run "
                    "can be continued: the same command goes on once Ray is there again"
                )
        self.room()

    def _machines(self) -> list[Resources]:
        return [
            Resources(node["Resources"].get("CPU", 0), node["Resources"].get("GPU", 0))
            for node in self.ray.nodes()
            if node["Alive"]
        ]

    def _choose_gpus(self, gpus: float | None, device: str) -> float:
        if gpus is not None:
            return gpus
        if device == "auto":
            return float(any(machine.gpus for machine in self._machines()))
        return float(device.startswith("cuda"))

    def _inspect(self) -> None:
        """Let every machine say whether it would do the same as this one.

        Raises:
            RunError: if one would not.
        """
        on_node = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        asked = {}
        for node in self.ray.nodes():
            if node["Alive"]:
                there = on_node(node["NodeID"], soft=False)
                look = self.ray.remote(num_cpus=0, max_retries=0)(problem_of)
                reference = look.options(scheduling_strategy=there).remote(self._site)
                asked[reference] = node["NodeManagerHostname"]
        for reference, host in asked.items():
            try:
                problem = self.ray.get(reference, timeout=_SECONDS_TO_INSPECT)
            except self.ray.exceptions.RayError as error:
                problem = f"a worker cannot be started or used there: {told(error)}"
            if problem:
                raise RunError(f"Ray: {host}: {problem}")


class RemoteRun:
    """A run on some machine; see `Process`."""

    def __init__(self, cluster: Cluster, reference: Any) -> None:
        self._cluster = cluster
        self._reference = reference
        self._ending: int | str | None = None

    def poll(self) -> int | str | None:
        """Return its exit code, or in words how it was lost; None while it runs.

        Raises:
            RunError: if its machine cannot be used, or the cluster is lost.
        """
        if self._ending is not None:
            return self._ending
        if self._cluster.is_lost:
            return "the Ray cluster is lost"
        ray = self._cluster.ray
        ready, _ = ray.wait([self._reference], timeout=0)
        if not ready:
            self._cluster.check()
            return None
        try:
            self._ending = ray.get(self._reference)
        except ray.exceptions.RayError as error:
            self._ending = f"Ray: {told(error)}"
            return self._ending
        if isinstance(self._ending, str):
            raise RunError(f"Ray: {self._ending}")
        return self._ending

    def terminate(self) -> None:
        """Ask it to save and leave, or take it off the queue."""
        self._cluster.ray.cancel(self._reference)

    def wait(self) -> None:
        """Wait until it has left, or nobody can tell any more."""
        with contextlib.suppress(RunError):  # what is lost now is found by the next start
            while self.poll() is None:
                time.sleep(SECONDS_BETWEEN_LOOKS)


def unreachable(address: tuple[str, int]) -> str:
    """Return why nobody answers at an address, empty if somebody does."""
    try:
        socket.create_connection(address, timeout=_SECONDS_TO_CONNECT).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _fitting(wanted: Resources, machine: Resources) -> int:
    """Return how many runs fit into a machine."""
    shares = [has / needs for has, needs in zip(machine, wanted, strict=True) if needs]
    return math.floor(min(shares) + 1e-9)  # ten tenths are one


def told(error: BaseException) -> str:
    """Return what an error of Ray says, without the trace of another process."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    traced = any(line.startswith("Traceback") or "ray::" in line for line in lines)
    return (lines[-1] if traced else " ".join(lines))[:500] or type(error).__name__
