"""A study from its plan to its last run, or as far as it gets, and the directory it lies in."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from annealtune.errors import ConfigError
from annealtune.studies.engines import Engine, EventKind
from annealtune.studies.plan import Plan, Task
from annealtune.studies.records import (
    FAILURE_FILE,
    STUDY_FILE,
    Study,
    read_facts,
    read_study,
    sealed_toml,
)
from annealtune.training.config import differences
from annealtune.training.progress import describe
from annealtune.training.provenance import describe_provenance
from annealtune.training.stopping import StopRequest
from annealtune.training.storage.files import RecordFile, explained, locked, write_atomically
from annealtune.training.storage.seal import METRICS


class Display:
    """Writes a line for all that happens, whichever engine runs it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._over = 0
        self._started: dict[Path, float] = {}

    def begin(self, tasks: Sequence[Task], done: int) -> None:
        """Say how many runs there are to do."""
        self._total, self._over = len(tasks), done
        self._print(f"{len(tasks) - done} of {len(tasks)} runs to do")

    def happened(self, kind: EventKind, task: Task, detail: str) -> None:
        """Say what happened; see `Observer`."""
        told = f": {detail}" if detail else ""
        if kind == "started":
            self._started[task.path] = time.monotonic()
            if epochs := task.epochs_done():
                told = f" again, {epochs} of {task.config.epochs} epochs are there"
        if kind == "finished":
            seconds = time.monotonic() - self._started.get(task.path, time.monotonic())
            last = RecordFile(task.path / METRICS).read()[-1]
            told = f": {describe(last)}  ({seconds:.0f} s)"
        if kind in ("finished", "failed"):
            self._over += 1
        position = f"[{self._over:{len(str(self._total))}}/{self._total}]"
        self._print(f"{position} {kind} {task.name}{told}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def run_study(
    plan: Plan,
    path: Path,
    engine: Engine,
    display: Display,
    stop: StopRequest,
    *,
    retry_failed: bool = False,
) -> Study:
    """Run what is missing or incomplete of a study.

    Args:
        plan: which runs; it contains every run of the study that is there, if there is one.
        path: of the study directory.
        engine: who runs them.
        display: shows what happens.
        stop: asks to save everything and leave.
        retry_failed: also run again what was given up earlier; a failure is mostly not a matter
            of luck, so this must be asked for.

    Returns:
        The study as it is on disk afterwards; runs that failed are part of it.

    Raises:
        ConfigError: if the directory holds something else, or another study.
        DataError: if published data is missing or damaged.
        RunError: if another process holds the directory, or the disk refuses.
        RunStoppedError: if it was asked to stop; the same call goes on from there.
    """
    _check_free(path)
    with locked(path):
        if (path / STUDY_FILE).exists():
            _check_same(path, read_facts(path), plan)
        write_atomically(path / STUDY_FILE, sealed_toml(_facts(plan)))
        tasks = plan.tasks(path)
        for task in tasks if retry_failed else []:
            with explained(task.path):
                (task.path / FAILURE_FILE).unlink(missing_ok=True)
        left = [task for task in tasks if task.is_left()]
        _check_data(plan, left)
        display.begin(tasks, len(tasks) - len(left))
        engine.run(left, display.happened, stop)
    return read_study(path)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def stored_threads(path: Path) -> int | None:
    """Return the thread count of the runs of a study, None if there is no study yet.

    Results depend on it, so a study that is continued keeps it.
    """
    if not (path / STUDY_FILE).exists():
        return None
    threads: int | None = read_facts(path)["methods"][0]["config"].get("threads")
    return threads


def _check_free(path: Path) -> None:
    """Refuse a directory that holds something else than a study."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path}: is not a directory; choose another --out")
    if path.exists() and not (path / STUDY_FILE).exists():
        found = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
        if any(not name.startswith(STUDY_FILE) for name in found):
            raise ConfigError(
                f"{path}: holds {', '.join(found[:3])} and is not a study; choose an empty or new "
                "directory as --out"
            )


def _facts(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "command": plan.command,
        "vary": plan.vary,
        "seeds": list(plan.seeds),
        "environment": {**describe_provenance(), "cores": cores()},
        "methods": [{"label": label, "config": plan.config_of(label)} for label in plan.configs],
    }


def _check_same(path: Path, stored: dict[str, Any], plan: Plan) -> None:
    """Refuse a plan that would change or drop a run of the stored one."""
    differing = []
    if stored["vary"] != plan.vary:
        differing.append(f"vary = {plan.vary!r} (the study has {stored['vary']!r})")
    lost = [str(seed) for seed in stored["seeds"] if seed not in plan.seeds]
    if lost:
        differing.append(f"seeds: {', '.join(lost)} of the study missing")
    for method in stored["methods"]:
        label = method["label"]
        if label in plan.configs:
            found = differences(method["config"], plan.config_of(label))
            differing += [f"{label}: {each}" for each in found]
        else:
            differing.append(f"methods: {label} of the study missing")
    if differing:
        raise ConfigError(
            f"{path}: holds a study of another plan: {'; '.join(dict.fromkeys(differing))}. Seeds "
            "and methods may be added, everything else must stay; or choose another --out"
        )


def _check_data(plan: Plan, left: list[Task]) -> None:
    """Look once for data that is published, or fetch it, before many runs do so at once."""
    config = next(iter(plan.configs.values()))
    if not left or config.data not in ("cifar10", "fashion-mnist"):
        return
    from annealtune.training import data

    data.load(config.data, data_dir=config.data_dir, download=config.download)
