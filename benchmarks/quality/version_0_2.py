"""The default of version 0.2 over AdamW. Its code is taken from git and runs in a process apart.

This module is imported by both processes, so it must not need anything that 0.2 does not have.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import annealtune

from .gradients import Gradients, Looks, Record
from .tasks.catalogue import TASKS
from .tasks.task import Sources, Task

COMMIT = "f7bb585"
_ROOT = Path(__file__).parents[2]


class OldVersionError(Exception):
    """Version 0.2 cannot be had or does not run."""


def default(task: Task, _: str = "") -> Record:
    """Train with 0.2's SelfTuner over AdamW, to which nothing but the length is given.

    Raises:
        OldVersionError: if git does not have its code, or it fails.
    """
    sources = task.sources
    wanted = {
        "task": _name(task),
        "seed": task.seed,
        "length_factor": task.steps / type(task).steps,
        "data_dir": None if sources.data_dir is None else str(sources.data_dir.resolve()),
        "text": None if sources.text is None else str(sources.text.resolve()),
        "cache": str(sources.cache.resolve()),
    }
    path = os.pathsep.join([str(_code(sources.cache)), str(_ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.quality.version_0_2", json.dumps(wanted)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise OldVersionError(f"version 0.2 has failed on {wanted['task']}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _name(task: Task) -> str:
    for name, kind in TASKS.items():
        if kind is type(task):
            return name
    raise OldVersionError(
        f"version 0.2 runs on tasks of the catalogue alone, got {type(task).__name__}"
    )


def _code(cache: Path) -> Path:
    """Return where the packages of 0.2 are, taken from git the first time."""
    folder = cache.resolve() / "annealtune-0.2"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as part:
            with tarfile.open(fileobj=io.BytesIO(_archive())) as archive:
                archive.extractall(part, filter="data")
            try:
                (Path(part) / "src").rename(folder)
            except OSError:
                if not folder.exists():  # else another program was sooner
                    raise
    return folder


def _archive() -> bytes:
    try:
        done = subprocess.run(
            ["git", "archive", "--format=tar", COMMIT, "src"], cwd=_ROOT, capture_output=True
        )
    except FileNotFoundError:
        raise OldVersionError("version 0.2 is taken from git, which is not installed") from None
    if done.returncode:
        raise OldVersionError(
            f"version 0.2 is commit {COMMIT} of this repository, which git does not have here: "
            f"{done.stderr.decode().strip()}; a shallow clone gets it by git fetch --unshallow"
        )
    return done.stdout


def _run(task: Task) -> Record:
    """Train, where ``annealtune`` is that of 0.2, at the cost of a run without a race."""
    planned = task.steps
    while True:
        gradients, tuner, step = _begun(task, planned)
        while tuner.is_racing and tuner.steps < task.steps:
            step()
        excess = gradients.cost + planned - tuner.steps - task.steps
        if excess <= 0:
            break
        planned -= math.ceil(excess)
    rate = tuner.races[-1].rate if tuner.races else tuner.rate
    looks = Looks(gradients, planned)
    with contextlib.suppress(annealtune.errors.NonFiniteLossError):
        while tuner.steps < planned:
            step()
            looks.look(tuner.steps, tuner.averaged)
    counts = {"minibatches": tuner.steps, "extra_steps": tuner.extra_steps}
    return looks.outcome(rate, **counts)


def _begun(task: Task, planned: int) -> tuple[Gradients, Any, Callable[[], None]]:
    """Return what counts the cost, the tuner, and a function that makes one step."""
    gradients = Gradients(task)
    network = gradients.network
    groups = [{"params": ps, "lr": 0.01 * multiple} for ps, multiple in task.groups(network)]
    objective = gradients.objective if task.has_objective else None
    options: dict[str, Any] = {"model": network, "total_steps": planned, "objective": objective}
    tuner: Any = annealtune.SelfTuner(torch.optim.AdamW(groups, fused=True), **options)
    recorded = tuner.record(gradients.loss)

    def step() -> None:
        recorded(task.minibatch(tuner.steps)).backward()
        tuner.step()
        tuner.zero_grad()

    return gradients, tuner, step


def _main(wanted: dict[str, Any]) -> None:
    folder = Path(wanted["cache"]) / "annealtune-0.2"
    if not Path(annealtune.__file__).is_relative_to(folder):
        sys.exit(f"annealtune must be that in {folder}, got {annealtune.__file__}")
    torch.set_num_threads(1)
    data_dir, text = (None if wanted[n] is None else Path(wanted[n]) for n in ("data_dir", "text"))
    sources = Sources(data_dir, text, Path(wanted["cache"]))
    print(json.dumps(_run(TASKS[wanted["task"]](sources, wanted["seed"], wanted["length_factor"]))))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
