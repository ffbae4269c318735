"""The default of version 0.1 over AdamW. Its code is taken from git and runs in a process apart.

This module is imported by both processes, so it must not need anything that 0.1 does not have.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import torch

from .gradients import Gradients, Record, broken, outcome
from .tasks.catalogue import TASKS
from .tasks.task import Sources, Task

COMMIT = "e96e94a"
_ROOT = Path(__file__).parents[2]

# What 0.1's own benchmark planned with: the cost of a step in gradients where few are measured, and
# that of the search at the start. What a run really costs is counted.
_STEP, _SEARCH = 1.02, 40 / 3
_DEAREST_STEP = 4 / 3


class OldVersionError(Exception):
    """Version 0.1 cannot be had or does not run."""


def default(task: Task, _: str = "") -> Record:
    """Train with 0.1's EmbeddedTuner over AdamW, to which nothing but the length is given.

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
        [sys.executable, "-m", "benchmarks.quality.version_0_1", json.dumps(wanted)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise OldVersionError(f"version 0.1 has failed on {wanted['task']}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _name(task: Task) -> str:
    for name, kind in TASKS.items():
        if kind is type(task):
            return name
    raise OldVersionError(
        f"version 0.1 runs on tasks of the catalogue alone, got {type(task).__name__}"
    )


def _code(cache: Path) -> Path:
    """Return where the packages of 0.1 are, taken from git the first time."""
    folder = cache.resolve() / "annealtune-0.1"
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
        raise OldVersionError("version 0.1 is taken from git, which is not installed") from None
    if done.returncode:
        raise OldVersionError(
            f"version 0.1 is commit {COMMIT} of this repository, which git does not have here: "
            f"{done.stderr.decode().strip()}; a shallow clone gets it by git fetch --unshallow"
        )
    return done.stdout


def _run(task: Task) -> Record:
    """Train, where ``annealtune`` is that of 0.1; the average of the weights counts."""
    from annealtune import EmbeddedTuner
    from annealtune.errors import NonFiniteLossError

    gradients = Gradients(task)
    network = gradients.network
    groups = task.groups(network)
    base = torch.optim.AdamW(
        [{"params": ps, "name": f"group {n}"} for n, (ps, _) in enumerate(groups)], fused=True
    )
    planned = max(1, int((task.steps - _SEARCH) / _STEP))
    tuner = EmbeddedTuner(
        base,
        model=network,
        total_steps=planned,
        group_scales={f"group {n}": multiple for n, (_, multiple) in enumerate(groups)},
        seed=task.seed,
    )
    step = 0
    while step < planned and gradients.cost + _DEAREST_STEP <= task.steps:
        try:
            tuner.step(gradients.closure(task.minibatch(step)))
        except NonFiniteLossError:
            return broken(gradients, None, minibatches=step)
        step += 1
    with tuner.averaged(gradients.calibration()):
        return outcome(gradients, None, minibatches=step)


def _main(wanted: dict[str, Any]) -> None:
    import annealtune

    folder = Path(wanted["cache"]) / "annealtune-0.1"
    if not Path(annealtune.__file__).is_relative_to(folder):
        sys.exit(f"annealtune must be that in {folder}, got {annealtune.__file__}")
    torch.set_num_threads(1)
    data_dir, text = (None if wanted[n] is None else Path(wanted[n]) for n in ("data_dir", "text"))
    sources = Sources(data_dir, text, Path(wanted["cache"]))
    print(json.dumps(_run(TASKS[wanted["task"]](sources, wanted["seed"], wanted["length_factor"]))))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
