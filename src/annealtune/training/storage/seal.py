"""One seal over a run directory: digests that bind its files together. Imports no torch.

The manifest of every checkpoint is a seal of the run at that step: the text of ``config.toml``, the
digests of the task, the best weights and of the records as far as they went, and its own. Records
that come after it are cut when the run is continued, and shown nowhere. ``seal.json`` is the seal
of a finished run; it is written right before ``result.json``, whose digest it holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from annealtune.errors import RunError
from annealtune.training.config import ENVIRONMENT, FREE_KEYS, from_values

from . import CONFIG_FILE
from .files import finite, json_text

FORMAT = 2
SEAL_FILE = "seal.json"
RESULT_FILE = "result.json"
TASK_FILE = "task.json"
BEST_FILE = "best.json"
WEIGHTS = "best.safetensors"
# New best weights until the checkpoint that knows them is saved.
NEW_WEIGHTS = "best.safetensors.new"
METRICS, MOVES = "metrics.jsonl", "moves.jsonl"
RECORDS = (METRICS, MOVES)
CHECKPOINTS = "checkpoints"
# In the table `environment` of config.toml: the format of the seal; what was changed later.
MARK, CHANGES = "seal", "changes"
_OWN = "seal"
_BLOCK = 1 << 20
_BETWEEN_LOOKS = 0.02


class DamageError(Exception):
    """What is wrong with a file: its name and the rest of the sentence."""


def sealed_text(content: Mapping[str, Any]) -> bytes:
    """Return plain data as JSON with its own digest, by which every changed byte is noticed.

    Example:
        >>> text = sealed_text({"format": FORMAT, "step": 3})
        >>> unsealed(text, "step.json")
        {'format': 2, 'step': 3}
        >>> unsealed(text.replace(b"3", b"4", 1), "step.json")
        Traceback (most recent call last):
        annealtune.training.storage.seal.DamageError: step.json is damaged: its digest does not fit
    """
    plain = finite(dict(content))
    own = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return json.dumps({**plain, _OWN: own}, indent=1, allow_nan=False).encode()


def unsealed(text: bytes, name: str) -> dict[str, Any]:
    """Return what was given to `sealed_text`.

    Raises:
        DamageError: if it is something else.
    """
    content = {key: value for key, value in parsed(text, name).items() if key != _OWN}
    if text != sealed_text(content):
        raise DamageError(f"{name} is damaged: its digest does not fit")
    return content


def read_seal(path: Path) -> dict[str, Any]:
    """Read a seal.

    Raises:
        DamageError: if it is missing, damaged or of another format.
        RunError: if it cannot be read.
    """
    text = read_bytes(path)
    number = parsed(text, path.name).get("format")
    if number != FORMAT:
        raise DamageError(f"{path.name} has format {number!r}, this version reads up to {FORMAT}")
    return unsealed(text, path.name)


def parsed(content: bytes, name: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        DamageError: if it is none.
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise DamageError(f"{name} cannot be read: it is damaged")
    return value


def read_bytes(path: Path) -> bytes:
    """Read a file.

    Raises:
        DamageError: if it is not there.
        RunError: if it cannot be read: it may be whole, so nothing may be concluded from that.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DamageError(f"{path.name} is missing") from None
    except OSError as error:
        raise unreadable(path, error) from error


def digest(path: Path, size: int | None = None) -> list[Any]:
    """Return length and SHA-256 of a file, or of its first bytes; one that is missing is empty.

    Raises:
        RunError: if it cannot be read.
    """
    found = hashlib.sha256()
    length = 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK if size is None else min(_BLOCK, size - length)):
                found.update(block)
                length += len(block)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise unreadable(path, error) from error
    return [length, found.hexdigest()]


def unreadable(path: Path, error: OSError) -> RunError:
    """Return the error about something that may be whole but cannot be read."""
    return RunError(
        f"{path}: cannot be read: {error.strerror or error}. Nothing was changed: allow reading or "
        "bring the disk back, then try again"
    )


def manifests(directory: Path) -> list[str]:
    """Return the names of the manifests of a run's checkpoints, newest first.

    Raises:
        FileNotFoundError: if the directory is not there.
        RunError: if it cannot be read.
    """
    try:
        names = os.listdir(directory)  # noqa: PTH208 - Path.glob takes what it may not read for empty
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(directory, error) from error
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    steps = (stem for stem in stems if stem.startswith("step-") and stem[5:].isdecimal())
    return sorted(steps, key=step_of, reverse=True)


def step_of(name: str) -> int:
    """Return the step of a checkpoint from its name."""
    return int(name.removeprefix("step-"))


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


def is_marked(run: Path) -> bool:
    """Tell whether a run's config says that it is sealed."""
    try:
        table = tomllib.loads((run / CONFIG_FILE).read_text(encoding="utf-8")).get(ENVIRONMENT)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(table, dict) and MARK in table


def newest_seal(run: Path) -> dict[str, Any] | None:
    """Return the newest seal of a run's checkpoints that is whole, None if there is none.

    Raises:
        RunError: if one cannot be read.
    """
    directory = run / CHECKPOINTS
    try:
        names = manifests(directory)
    except FileNotFoundError:
        return None
    for name in names:
        with contextlib.suppress(DamageError):
            return read_seal(directory / f"{name}.json")
    return None


def config_changes(sealed: str, path: Path) -> list[str]:
    """Return what was changed in a run's config since it was sealed, none if nothing was.

    Raises:
        DamageError: if a key was changed that may not be, or no value at all.
        RunError: if it cannot be read.
    """
    content = read_bytes(path)
    if content == sealed.encode():
        return []
    try:
        now = flat(tomllib.loads(content.decode()))
    except (ValueError, RecursionError) as error:
        raise DamageError(f"{path.name} is damaged: it is not valid TOML: {error}") from None
    was = flat(tomllib.loads(sealed))
    differing = differences(was, now)
    if not differing:
        raise DamageError(f"{path.name} was changed: {_first_difference(sealed, content)}")
    told = [told_change(key, now.get(key), was.get(key)) for key in differing]
    follows_length = from_values(tomllib.loads(sealed)).follows_length
    if not all(may_change(key, was, now, follows_length) for key in differing):
        raise DamageError(f"{path.name} was changed: {'; '.join(told)}")
    return told


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ; the list of earlier changes is no value."""
    keys = sorted((was.keys() | now.keys()) - {f"{ENVIRONMENT}.{CHANGES}"})
    return [key for key in keys if was.get(key) != now.get(key)]


def told_change(key: str, now: Any, was: Any) -> str:
    """Return one changed key in words."""
    new, old = ("unset" if value is None else value for value in (now, was))
    return f"{key} = {new!r} (the run has {old!r})"


def may_change(
    key: str, was: Mapping[str, Any], now: Mapping[str, Any], follows_length: bool
) -> bool:
    """Tell whether a key may differ when a run goes on: those that leave what was trained as it is.

    Args:
        key: which one.
        was: all values of the run.
        now: all values it is to have.
        follows_length: whether the method looks at the length of the run from its first step.
    """
    if key == "epochs" and not follows_length:
        return bool(now.get(key, 0) > was.get(key, 0))
    return key in FREE_KEYS


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables in one level, keys joined by a dot.

    Example:
        >>> flat({"a": 1, "b": {"c": 2}})
        {'a': 1, 'b.c': 2}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def check_size(path: Path, sealed: list[Any], *, whole: bool = True) -> None:
    """Check a file against its sealed length and digest.

    Args:
        path: of the file.
        sealed: what `digest` returned.
        whole: whether nothing may follow; else only its beginning was sealed.

    Raises:
        DamageError: if it is another one.
        RunError: if it cannot be read.
    """
    size = sealed[0]
    if size and not os.path.lexists(path):
        raise DamageError(f"{path.name} is missing")
    found = digest(path, None if whole else size)
    if found[0] != size:
        more = f"{found[0]} bytes, {size} were sealed"
        raise DamageError(f"{path.name} was cut or added to: it has {more}")
    if found != sealed:
        part = "its content" if whole else f"what stands in its first {size} bytes"
        raise DamageError(f"{path.name} is damaged: {part} is not what was sealed")


def check_checkpoint(directory: Path, seal: Mapping[str, Any]) -> None:
    """Check the file of a checkpoint against its manifest.

    Raises:
        DamageError: if it is missing or another one.
        RunError: if it cannot be read.
    """
    if seal["file"] is not None:
        check_size(directory / seal["file"], [seal["bytes"], seal["sha256"]])


def check_best(run: Path, best: Mapping[str, Any] | None) -> None:
    """Check the best weights against what a seal says of them.

    Raises:
        DamageError: if they are other ones.
        RunError: if they cannot be read.
    """
    if best is not None and weights_of(run, best) is None:
        raise DamageError(f"{WEIGHTS} is damaged or missing: its digest is not what was sealed")


def weights_of(run: Path, best: Mapping[str, Any]) -> Path | None:
    """Return the file with the sealed best weights, None if none has their digest."""
    for name in (WEIGHTS, NEW_WEIGHTS):
        if digest(run / name)[1] == best["sha256"]:
            return run / name
    return None


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
        check(_check_same_text, end["config"], run / CONFIG_FILE)
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
    content = parsed(read_bytes(path), path.name)
    return None if is_older(content) else read_seal(path)


def is_older(manifest: Mapping[str, Any]) -> bool:
    """Tell whether a manifest is of an earlier version, which sealed the checkpoint alone."""
    return manifest.get("format") == 1 and _OWN not in manifest


def _check_same_text(sealed: str, path: Path) -> None:
    content = read_bytes(path)
    if content != sealed.encode():
        difference = _first_difference(sealed, content)
        raise DamageError(f"{path.name} was changed: {difference}")


def _first_difference(sealed: str, content: bytes) -> str:
    now = content.decode(errors="replace").splitlines()
    was = sealed.splitlines()
    for number, (old, new) in enumerate(itertools.zip_longest(was, now), 1):
        if old != new:
            return f"line {number} is {new!r}, it was {old!r}"
    return "its line ends differ"


def _remedy(run: Path) -> str:
    if (run / RESULT_FILE).exists():
        return "Put it back as it was or restore it from a backup"
    return (
        "Put it back as it was or restore it from a backup; annealtune train --out "
        f"{run} --resume goes on from the last good state, if there is one"
    )


def digest_of(content: bytes) -> list[Any]:
    """Return length and SHA-256 of some bytes."""
    return [len(content), hashlib.sha256(content).hexdigest()]
