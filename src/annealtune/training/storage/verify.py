"""Every file of a run against its seal, before anything is shown or loaded. Imports no torch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from annealtune.errors import RunError

from . import CONFIG_FILE
from .changes import check_same_text, config_changes
from .files import json_text
from .seal import (
    BEST_FILE,
    CHECKPOINTS,
    NEW_WEIGHTS,
    RECORDS,
    RESULT_FILE,
    SEAL_FILE,
    TASK_FILE,
    WEIGHTS,
    DamageError,
    check_best,
    check_checkpoint,
    check_size,
    digest_of,
    is_marked,
    is_older,
    manifest_of,
    manifests,
    parsed,
    read_bytes,
    read_seal,
)

_BETWEEN_LOOKS = 0.02


def check_run(run: Path, *, large: bool = True) -> dict[str, Any] | None:
    """Check every file of a run against its seal.

    A run that goes on is looked at until two looks agree.

    Args:
        run: its directory.
        large: whether weights and checkpoints are read too; their digests take time.

    Returns:
        The seal: of the end, or of the last checkpoint. None for a run of an earlier version, which
        cannot be verified.

    Raises:
        RunError: naming what is damaged or missing, or cannot be read.
    """
    before: list[str] | None = None
    for _ in range(10):
        seal, damages = _look(run, large)
        if not damages:
            return seal
        if damages == before:
            break
        before = damages
        time.sleep(_BETWEEN_LOOKS)
    raise RunError(f"{run}: {'; '.join(damages)}. {_remedy(run)}")


def _look(run: Path, large: bool) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the seal of a run and what does not fit it."""
    is_finished = (run / RESULT_FILE).exists()
    damages: list[str] = []

    def check(function: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except DamageError as damage:
            damages.append(str(damage))
            return None

    directory = run / CHECKPOINTS
    seals: list[dict[str, Any]] = []
    try:
        for name in manifests(directory):
            found = check(_manifest_or_older, directory / f"{name}.json")
            seals += [found] if found else []
    except FileNotFoundError:
        # Whoever needs the room may remove the checkpoints of a finished run.
        if is_marked(run) and not is_finished:
            damages.append(f"{CHECKPOINTS}/ is missing")
    else:
        if not seals and is_marked(run) and not is_finished:
            damages.append(f"{CHECKPOINTS}/ holds no manifest")
    for seal in seals if large else []:
        check(check_checkpoint, directory, seal)
    if is_finished:
        if not (run / SEAL_FILE).exists() and not seals and not is_marked(run):
            return None, damages
        end = check(read_seal, run / SEAL_FILE)
        if end is None:
            return None, damages
        check(check_same_text, end["config"], run / CONFIG_FILE)
        for name, sealed in end["files"].items():
            if large or name != WEIGHTS:
                check(check_size, run / name, sealed)
        return end, damages
    if not seals:
        return None, damages
    newest = seals[0]
    check(config_changes, newest["config"], run / CONFIG_FILE)
    for name, sealed in newest["files"].items():
        if name != TASK_FILE or (run / TASK_FILE).exists():
            check(check_size, run / name, sealed, whole=name not in RECORDS)
    if large:
        check(check_best, run, newest["best"])
    if newest["best"] is not None and not (run / NEW_WEIGHTS).exists():
        check(check_size, run / BEST_FILE, digest_of(json_text(newest["best"])))
    return newest, damages


def _manifest_or_older(path: Path) -> dict[str, Any] | None:
    """Return a manifest; None for one of an earlier version, which seals nothing else."""
    text = read_bytes(path)
    return None if is_older(parsed(text, path.name)) else manifest_of(text, path.name)


def _remedy(run: Path) -> str:
    if (run / RESULT_FILE).exists():
        return "Put it back as it was or restore it from a backup"
    return (
        "Put it back as it was or restore it from a backup; annealtune train --out "
        f"{run} --resume goes on from the last good state, if there is one"
    )
