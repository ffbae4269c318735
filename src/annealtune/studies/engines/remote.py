"""What happens on the machine of a worker: whether it will do, and a run from start to end.

It is the same whoever brings it there, and imports nothing of theirs.
"""

import contextlib
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from annealtune.studies.engines.local import PROGRAM, SECONDS_BETWEEN_LOOKS, popen
from annealtune.studies.records import is_locked
from annealtune.training.provenance import describe_provenance
from annealtune.training.storage.files import locked


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
    except KeyboardInterrupt:  # how Ray and submitit cancel
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
