"""The directory of a study: one plan, one process at a time, no other files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock

from annealtune.errors import ConfigError, RunError
from annealtune.studies.plan import Plan
from annealtune.studies.records import FORMAT, RUNS, STUDY_FILE, read_facts, sealed_toml
from annealtune.training.config import FREE_KEYS, from_values
from annealtune.training.storage import flat
from annealtune.training.storage.files import (
    describe_provenance,
    explained,
    scratch_of,
    write_atomically,
)

LOCK = ".lock"


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
    threads = read_facts(path)["experiment"].get("threads")
    return threads if type(threads) is int else None


@contextmanager
def opened(path: Path, plan: Plan, search: dict[str, Any] | None = None) -> Iterator[None]:
    """Hold a study directory, new or of the same plan, and write the plan into it.

    Args:
        path: of the directory.
        plan: contains every run of the study that is there, if there is one.
        search: what a search for the best seed is to do, None for a comparison.

    Raises:
        ConfigError: if the directory is part of something else or holds another study.
        RunError: if another process holds it, or it cannot be written to.
    """
    _check_place(path)
    _check_content(path)
    with _locked(path):
        _check_content(path)  # once more: another process may have been faster
        if (path / STUDY_FILE).exists():
            _check_same(path, read_facts(path), plan, search)
        write_atomically(path / STUDY_FILE, sealed_toml(_facts(plan, search)))
        yield


def _facts(plan: Plan, search: dict[str, Any] | None) -> dict[str, Any]:
    facts = {
        "format": FORMAT,
        "name": plan.name,
        "command": plan.command,
        "vary": plan.vary,
        "seeds": list(plan.seeds),
        "experiment": plan.experiment(),
        "environment": {**describe_provenance(), "cores": cores()},
        "methods": [{"label": label, "config": plan.config_of(label)} for label in plan.methods],
    }
    return facts if search is None else {**facts, "search": search}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with explained(path):
        path.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path / LOCK, timeout=0)
    with explained(path):
        is_ours = acquire(lock)
    if not is_ours:
        raise RunError(
            f"{path}: another process is working on this study; wait for it or choose another --out"
        )
    try:
        yield
    finally:
        lock.release()


def acquire(lock: filelock.BaseFileLock) -> bool:
    """Take a lock if it is free; tell whether it was."""
    try:
        lock.acquire()
    except filelock.Timeout:
        return False
    return True


def _check_place(path: Path) -> None:
    """Refuse a place inside another study or run, and one that is a run itself."""
    place = path.resolve()
    if place.exists() and not place.is_dir():
        raise ConfigError(f"{path}: is not a directory; choose another --out")
    if _is_run(place):
        raise ConfigError(f"{path}: is a run directory; choose another --out")
    for above in place.parents:
        kind = "study" if (above / STUDY_FILE).is_file() else "run" if _is_run(above) else None
        if kind is not None:
            raise ConfigError(
                f"{path}: lies within the {kind} {above}; choose an --out outside of it"
            )


def _is_run(path: Path) -> bool:
    return (path / "config.toml").is_file() and (path / "metrics.jsonl").is_file()


def _check_content(path: Path) -> None:
    """Refuse a directory that holds something other than a study."""
    if not path.exists() or (path / STUDY_FILE).exists():
        return
    ours = {LOCK, scratch_of(path / STUDY_FILE).name}
    found = sorted(entry.name for entry in path.iterdir() if entry.name not in ours)
    if found:
        shown = ", ".join(found[:3]) + (" ..." if len(found) > 3 else "")
        what = f"{RUNS}/ but no {STUDY_FILE}" if RUNS in found else shown
        raise ConfigError(
            f"{path}: holds {what} and is not a study; choose an empty or new directory as --out"
        )


def _check_same(
    path: Path, stored: dict[str, Any], plan: Plan, search: dict[str, Any] | None
) -> None:
    """Refuse a plan that would change or drop a run of the stored one."""
    differing = []
    if stored["vary"] != plan.vary:
        differing.append(f"vary = {plan.vary!r} (the study has {stored['vary']!r})")
    if stored.get("search") != search:
        differing.append(f"search = {search} (the study has {stored.get('search')})")
    configs = {
        method["label"]: _as_of_now(method["config"], plan.vary) for method in stored["methods"]
    }
    lost = [label for label in configs if label not in plan.configs]
    if lost:
        differing.append(f"methods: {', '.join(lost)} of the study missing")
    lost_seeds = [str(seed) for seed in stored["seeds"] if seed not in plan.seeds]
    if lost_seeds:
        differing.append(f"seeds: {', '.join(lost_seeds)} of the study missing")
    for label, theirs in configs.items():
        if label in plan.configs:
            differing += _differences(label, theirs, plan.config_of(label))
    if differing:
        raise ConfigError(
            f"{path}: holds a study of another plan: {'; '.join(dict.fromkeys(differing))}. Seeds "
            "and methods may be added, everything else must stay; or choose another --out"
        )


def _as_of_now(config: dict[str, Any], vary: str) -> dict[str, Any]:
    """Return a stored config with the defaults of keys that it was written without."""
    try:
        values = from_values(config).to_dict()
    except ConfigError:  # a key that is gone: the differences will tell
        return config
    values.pop(vary, None)
    return values


def _differences(label: str, theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    old, new = flat(theirs), flat(ours)
    return [
        f"{f'{label}: ' if '.' in key or key == 'method' else ''}{key} = "
        f"{new.get(key, 'unset')!r} (the study has {old.get(key, 'unset')!r})"
        for key in sorted(old.keys() | new.keys())
        if key not in FREE_KEYS and old.get(key) != new.get(key)
    ]
