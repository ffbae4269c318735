"""A study from its plan to its last run, or as far as it gets, and the directory it lies in."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock

from annealtune.errors import ConfigError, RunError
from annealtune.studies.display import Display
from annealtune.studies.engines import Engine, Task
from annealtune.studies.plan import Plan
from annealtune.studies.records import (
    FAILURE_FILE,
    FORMAT,
    STUDY_FILE,
    Study,
    acquire,
    read_facts,
    read_study,
    run_path,
    sealed_toml,
)
from annealtune.training.stopping import StopRequest
from annealtune.training.storage import differences, is_run
from annealtune.training.storage.files import LOCK, describe_provenance, explained, write_atomically


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
    with _held(path):
        if (path / STUDY_FILE).exists():
            _check_same(path, read_facts(path), plan)
        write_atomically(path / STUDY_FILE, sealed_toml(_facts(plan)))
        tasks = tasks_of(plan, path)
        for task in tasks if retry_failed else []:
            with explained(task.path):
                (task.path / FAILURE_FILE).unlink(missing_ok=True)
        left = [task for task in tasks if task.is_left()]
        _check_data(plan, left)
        with display.showing(tasks, len(tasks) - len(left)):
            engine.run(left, display, stop)
    return read_study(path)


def tasks_of(plan: Plan, path: Path) -> list[Task]:
    """Return one task a run of the plan, in its order."""
    return [
        Task(run.method, run.seed, run.config, run_path(path, run.method, run.seed))
        for run in plan.runs()
    ]


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
    threads: int | None = read_facts(path)["experiment"].get("threads")
    return threads


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold the directory of a study, new or begun, while the context lasts."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path}: is not a directory; choose another --out")
    if is_run(path):
        raise ConfigError(f"{path}: is a run directory; choose another --out")
    if path.exists() and not (path / STUDY_FILE).exists():
        found = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
        if any(not name.startswith(STUDY_FILE) for name in found):
            raise ConfigError(
                f"{path}: holds {', '.join(found[:3])} and is not a study; choose an empty or new "
                "directory as --out"
            )
    lock = filelock.FileLock(path / LOCK)
    with explained(path):
        path.mkdir(parents=True, exist_ok=True)
        is_ours = acquire(lock)
    if not is_ours:
        raise RunError(
            f"{path}: another process is working on this study; wait for it or choose another --out"
        )
    try:
        yield
    finally:
        lock.release()


def _facts(plan: Plan) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": plan.name,
        "command": plan.command,
        "vary": plan.vary,
        "seeds": list(plan.seeds),
        "experiment": plan.experiment(),
        "environment": {**describe_provenance(), "cores": cores()},
        "methods": [{"label": label, "config": plan.config_of(label)} for label in plan.methods],
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
