"""The directory of a run: what is in it, and that only one process works in it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import filelock
import safetensors.torch
from torch import nn

from annealtune.errors import ConfigError, RunError
from annealtune.training.config import FREE_KEYS, RunConfig, from_values, read_toml
from annealtune.training.task import Task

from . import CONFIG_FILE, is_run, require_run
from .checkpoint import Checkpoints
from .files import explained, read_json, replacing, scratch_of, write_json
from .forms import check_best, check_epoch, check_moves, check_result, check_task
from .records import RecordFile


class RunDirectory:
    """A run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / CONFIG_FILE
        self.task_file = self.path / "task.json"
        self.metrics = RecordFile(self.path / "metrics.jsonl", partial(check_epoch, whole=True))
        self.moves = RecordFile(self.path / "moves.jsonl", partial(check_moves, whole=True))
        self.best_weights = self.path / "best.safetensors"
        self.best_file = self.path / "best.json"
        self.result_file = self.path / "result.json"
        self.checkpoints = Checkpoints(self.path / "checkpoints")

    @property
    def has_begun(self) -> bool:
        """Whether there is a run in this directory."""
        return is_run(self.path)

    def result(self) -> dict[str, Any] | None:
        """Return the result of a finished run, None before that."""
        if not self.result_file.exists():
            return None
        return read_json(self.result_file, partial(check_result, whole=True))

    def check_free(self) -> None:
        """Check that a new run would overwrite nothing here.

        Raises:
            ConfigError: if there is a run, or what is left of one.
        """
        if self.has_begun:
            raise ConfigError(
                f"{self.path}: holds a run already; continue it with --resume or choose another "
                "--out"
            )
        written = (
            self.task_file,
            self.metrics.path,
            self.moves.path,
            self.best_weights,
            self.best_file,
            self.result_file,
            self.checkpoints.directory,
        )
        found = [path.name for path in written if path.exists()]
        if found:
            raise ConfigError(
                f"{self.path}: holds {', '.join(found)} of a run, but no config.toml; choose "
                "another --out"
            )

    def remove_scratch(self) -> None:
        """Remove what interrupted writes left behind; files that are not ours stay."""
        ours = (
            self.config_file,
            self.task_file,
            self.best_weights,
            self.best_file,
            self.result_file,
        )
        with explained(self.path):
            # safetensors writes aside too, under a name of this form.
            for path in (*map(scratch_of, ours), *self.path.glob(".tmp??????")):
                path.unlink(missing_ok=True)
            self.checkpoints.remove_scratch()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory; it is free again when the process ends, however it ends.

        Raises:
            RunError: if another process holds it, or it cannot be written to.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self.path / ".lock", timeout=0)
            lock.acquire()
        except filelock.Timeout:
            raise RunError(
                f"{self.path}: another process is working in this run directory; wait for it or "
                "choose another --out"
            ) from None
        except OSError as error:
            raise RunError(
                f"{self.path}: cannot be used as a run directory: {error.strerror or error}; "
                "choose another --out"
            ) from error
        try:
            yield
        finally:
            lock.release()

    def config(self) -> RunConfig:
        """Return the config of the run.

        Raises:
            ConfigError: if the directory holds no run.
        """
        require_run(self.path)
        return from_values(read_toml(self.config_file), str(self.config_file))

    def check_same(self, config: RunConfig) -> None:
        """Check that a config is the run's own, apart from keys that do not change results.

        Raises:
            ConfigError: naming the keys that differ.
        """
        ours, theirs = _flat(self.config()), _flat(config)
        keys = sorted(ours.keys() | theirs.keys())
        if ours["method"] != theirs["method"]:  # then their options differ anyway
            keys = [key for key in keys if "." not in key]
        differing = [
            f"{key} = {theirs.get(key, 'unset')!r} (the run has {ours.get(key, 'unset')!r})"
            for key in keys
            if key not in FREE_KEYS and ours.get(key) != theirs.get(key)
        ]
        if differing:
            raise ConfigError(
                f"{self.path}: holds a run of another config: {'; '.join(differing)}. Choose "
                "another --out, or leave these keys as they are"
            )

    def task(self) -> Task | None:
        """Return what the run learns; None where version 0.1 began it, which did not note it.

        Raises:
            RunError: if it cannot be read.
        """
        if not self.task_file.exists():
            return None
        content = read_json(self.task_file, check_task)
        try:
            return Task.from_dict(content)
        except (TypeError, ValueError) as error:
            raise RunError(f"{self.task_file}: does not describe a task: {error}") from None

    def note_task(self, task: Task) -> None:
        """Write down what the run learns, so that its model can be built without the data.

        Raises:
            RunError: if the run began with other data.
        """
        noted = self.task()
        if noted is None:
            write_json(self.task_file, task.to_dict())
        elif noted != task:
            ours, theirs = noted.to_dict(), task.to_dict()
            differing = [
                f"{key} {theirs[key]} (the run has {ours[key]})"
                for key in ours
                if ours[key] != theirs[key]
            ]
            raise RunError(
                f"{self.path}: the data is not what the run began with: {'; '.join(differing)}. "
                "Put it back as it was, or start again in another directory"
            )

    def save_best(self, model: nn.Module, facts: dict[str, Any]) -> None:
        """Write weights that did better than all before on the validation set."""
        with replacing(self.best_weights) as scratch:
            try:
                safetensors.torch.save_model(model, str(scratch))
            except safetensors.SafetensorError as error:
                raise _as_os_error(error) from error
            digest = _digest(scratch)
        write_json(self.best_file, {**facts, "sha256": digest})

    def load_best(self, model: nn.Module) -> dict[str, Any]:
        """Load the best weights into a model and return what is known of them.

        Raises:
            RunError: if there are none, or they are not those that were saved.
        """
        if not self.best_file.exists() or not self.best_weights.exists():
            raise RunError(f"{self.path}: has no best weights yet: its first epoch has not ended")
        facts = read_json(self.best_file, partial(check_best, whole=True))
        if _digest(self.best_weights) != facts.get("sha256"):
            raise RunError(
                f"{self.best_weights}: is damaged, or a run was killed while writing it: its "
                "digest is not the one in best.json; an unfinished run writes it again with "
                "--resume, else restore it from a backup"
            )
        try:
            safetensors.torch.load_model(model, str(self.best_weights))
        except (
            Exception
        ) as error:  # the digest is right but the file not ours: whatever it provokes
            raise RunError(
                f"{self.best_weights}: does not fit the model of config.toml: "
                f"{' '.join(str(error).split())}"
            ) from error
        return facts


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _as_os_error(error: Exception) -> OSError:
    """Return what the disk said to a library that hands it on as text alone."""
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))


def _flat(config: RunConfig) -> dict[str, Any]:
    """Return the keys of a config in one level, those of its method as ``method.key``."""
    flat: dict[str, Any] = {}
    for key, value in config.to_dict().items():
        if isinstance(value, dict):
            flat |= {f"{key}.{option}": setting for option, setting in value.items()}
        else:
            flat[key] = value
    return flat
