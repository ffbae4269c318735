"""The directory of a run: what is in it, and that only one process works in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import safetensors.torch
from torch import nn

from annealtune.errors import ConfigError, RunError
from annealtune.training.checkpoint import Checkpoints, write_atomically
from annealtune.training.config import FREE_KEYS, RunConfig, from_values, read_toml
from annealtune.training.records import RecordFile


class RunDirectory:
    """A run on disk.

    Args:
        path: of the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.toml"
        self.metrics = RecordFile(self.path / "metrics.jsonl")
        self.moves = RecordFile(self.path / "moves.jsonl")
        self.best_weights = self.path / "best.safetensors"
        self.best_file = self.path / "best.json"
        self.result_file = self.path / "result.json"
        self.checkpoints = Checkpoints(self.path / "checkpoints")

    @property
    def has_begun(self) -> bool:
        """Whether there is a run in this directory."""
        return self.config_file.exists()

    def result(self) -> dict[str, Any] | None:
        """Return the result of a finished run, None before that."""
        return _read_json(self.result_file) if self.result_file.exists() else None

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
                f"{self.path}: cannot be used as a run directory: {error.strerror}; choose another "
                "--out"
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
        if not self.has_begun:
            raise ConfigError(f"{self.path}: is no run directory: it has no config.toml")
        return from_values(read_toml(self.config_file), str(self.config_file))

    def check_same(self, config: RunConfig) -> None:
        """Check that a config is the run's own, apart from keys that do not change results.

        Raises:
            ConfigError: naming the keys that differ.
        """
        ours, theirs = self.config().to_dict(), config.to_dict()
        differing = [
            f"{key} = {theirs.get(key)!r} (the run has {ours.get(key)!r})"
            for key in sorted(ours.keys() | theirs.keys())
            if key not in FREE_KEYS and ours.get(key) != theirs.get(key)
        ]
        if differing:
            raise ConfigError(
                f"{self.path}: holds a run of another config: {'; '.join(differing)}. Choose "
                "another --out, or leave these keys as they are"
            )

    def save_best(self, model: nn.Module, facts: dict[str, Any]) -> None:
        """Write weights that did better than all before on the validation set."""
        scratch = self.best_weights.with_name("best.safetensors.new")
        try:
            safetensors.torch.save_model(model, str(scratch))
            content = scratch.read_bytes()
        except (OSError, safetensors.SafetensorError) as error:
            raise RunError(f"{scratch}: cannot be written: {error}") from error
        finally:
            scratch.unlink(missing_ok=True)
        write_atomically(self.best_weights, content)
        digest = {"sha256": hashlib.sha256(content).hexdigest()}
        write_atomically(self.best_file, json.dumps({**facts, **digest}, indent=2).encode())

    def load_best(self, model: nn.Module) -> dict[str, Any]:
        """Load the best weights into a model and return what is known of them.

        Raises:
            RunError: if there are none, or they are not those that were saved.
        """
        if not self.best_file.exists() or not self.best_weights.exists():
            raise RunError(f"{self.path}: has no best weights yet: its first epoch has not ended")
        facts = _read_json(self.best_file)
        if hashlib.sha256(self.best_weights.read_bytes()).hexdigest() != facts.get("sha256"):
            raise RunError(
                f"{self.best_weights}: is damaged or was being written: its digest is not the one "
                "in best.json; continue the run with --resume to write it again"
            )
        safetensors.torch.load_model(model, str(self.best_weights))
        return facts


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None
    return content
