"""The directory of a run: what is in it, and how it goes on where it was left."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from annealtune.errors import ConfigError, DataError, RunError
from annealtune.training.config import ENVIRONMENT, RunConfig, differences, from_values, read_toml
from annealtune.training.task import Task

from . import CONFIG_FILE, is_run, require_run, seal
from .checkpoint import Checkpoints
from .files import (
    RecordFile,
    digest,
    explained,
    finite,
    read_json,
    replacing,
    scratch_of,
    write_atomically,
    write_json,
)


class RunDirectory:
    """A run on disk.

    Attributes:
        best: what is known of the best weights, with their digest; None before the first epoch
            has ended.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / CONFIG_FILE
        self.task_file = self.path / seal.TASK_FILE
        self.metrics = RecordFile(self.path / seal.METRICS)
        self.moves = RecordFile(self.path / seal.MOVES)
        self.best_weights = self.path / seal.WEIGHTS
        self.best_file = self.path / seal.BEST_FILE
        self.result_file = self.path / seal.RESULT_FILE
        self.checkpoints = Checkpoints(self.path / seal.CHECKPOINTS)
        self.best: dict[str, Any] | None = None
        self._config_text: str | None = None

    @property
    def has_begun(self) -> bool:
        """Whether there is a run in this directory."""
        return is_run(self.path)

    def check(self, *, large: bool = True) -> None:
        """Check the files of a finished run; see `seal.check_run`."""
        require_run(self.path)
        seal.check_run(self.path, large=large)

    def result(self) -> dict[str, Any] | None:
        """Return the result of a finished run, None before that."""
        return read_json(self.result_file) if self.result_file.exists() else None

    def check_free(self) -> None:
        """Check that a new run would overwrite nothing here.

        Raises:
            ConfigError: if there is a run, or what is left of one.
        """
        written = (CONFIG_FILE, seal.METRICS, seal.WEIGHTS, seal.RESULT_FILE, seal.CHECKPOINTS)
        found = [name for name in written if (self.path / name).exists()]
        if found:
            raise ConfigError(
                f"{self.path}: holds a run already, or a part of one ({', '.join(found)}); "
                "continue it with --resume or choose another --out"
            )

    # --- Config and task ---

    def config(self) -> RunConfig:
        """Return the config of the run, as the last checkpoint has it, if one was loaded.

        Raises:
            ConfigError: if the directory holds no run.
        """
        require_run(self.path)
        text = self._config_text
        values = read_toml(self.config_file) if text is None else tomllib.loads(text)
        return from_values(values, str(self.config_file))

    def check_same(self, config: RunConfig) -> None:
        """Check that a config is the run's own, apart from `FREE_KEYS`.

        Raises:
            ConfigError: naming the keys that differ.
        """
        differing = differences(self.config().to_dict(), config.to_dict())
        if differing:
            raise ConfigError(
                f"{self.path}: holds a run of another config: {'; '.join(differing)}. Choose "
                "another --out, or leave these keys as they are"
            )

    def task(self) -> Task:
        """Return what the run learns.

        Raises:
            RunError: if it cannot be read.
        """
        try:
            return Task.from_dict(read_json(self.task_file))
        except TypeError as error:
            raise RunError(f"{self.task_file}: does not describe a task: {error}") from None

    # --- Going on ---

    def load(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """Return the state of the newest checkpoint that fits the records, None at the start.

        Nothing is changed. Warns of a damaged checkpoint that is skipped.

        Raises:
            RunError: if all checkpoints are damaged or gone, or something cannot be read.
        """

        def check(state: dict[str, Any]) -> None:
            for records in (self.metrics, self.moves):
                records.check(state["records"][records.path.name])

        state = self.checkpoints.load(warn, check)
        # Every epoch ends with a checkpoint: at most one is recorded before the first.
        if state is None and len(self.metrics.read()) > 1:
            raise RunError(
                f"{self.checkpoints.directory}: has no checkpoint, but the run has begun. Nothing "
                "was changed: restore the directory from a backup, or start again in another one"
            )
        if state is not None:
            self._config_text = state["config"]
        return state

    def begin(
        self,
        state: Mapping[str, Any] | None,
        config: RunConfig,
        environment: Mapping[str, Any],
        task: Task,
    ) -> bool:
        """Write what a run begins with, or forget what was recorded after a state of it.

        Args:
            state: of the run, None at the start.
            config: of the run; free keys may have changed.
            environment: what a new run is begun with: versions, machine, command.
            task: what is learnt.

        Returns:
            Whether the best weights of the state are there.

        Raises:
            RunError: if the disk refuses.
        """
        for records in (self.metrics, self.moves):
            records.cut(0 if state is None else state["records"][records.path.name][0])
        self._remove_scratch()
        if state is not None:
            self.checkpoints.tidy()
        self.best = None if state is None else state["best"]
        is_there = self.best is not None and digest(self.best_weights) == self.best["sha256"]
        if self.best is not None and is_there:
            # A kill leaves the old facts beside the new weights for a moment.
            write_json(self.best_file, self.best)
        if self.has_begun:
            text = self._config_text or self.config_file.read_text(encoding="utf-8")
            environment = tomllib.loads(text).get(ENVIRONMENT, {})
        self._config_text = config.to_toml(environment)
        write_atomically(self.config_file, self._config_text.encode())
        if not self.task_file.exists():
            write_json(self.task_file, task.to_dict())
        return is_there

    def check_data(self, task: Task, digest: str = "") -> None:
        """Check that the data is what the run was trained on.

        Args:
            task: of the data as it is now.
            digest: of the data, if a checkpoint knows it.

        Raises:
            DataError: if it is something else.
        """
        known = self.task() if self.task_file.exists() else task
        if known != task or digest not in ("", task.digest):
            raise DataError(
                f"{self.path}: the data is not what the run was trained on. Put it back as it was, "
                "or start again in another directory; a factory that splits or shuffles at random "
                "needs a fixed seed, such as train_test_split(..., random_state=0)"
            )

    def _remove_scratch(self) -> None:
        """Remove what interrupted writes left behind; files that are not ours stay."""
        names = (CONFIG_FILE, seal.TASK_FILE, seal.BEST_FILE, seal.SEAL_FILE, seal.RESULT_FILE)
        ours = [scratch_of(self.path / name) for name in (*names, seal.WEIGHTS)]
        # safetensors writes aside too, under a name of this form.
        theirs = self.path.glob(".tmp??????") if self.has_begun else ()
        with explained(self.path):
            for path in (*ours, *theirs, *self.checkpoints.directory.glob("step-*.tmp")):
                if not path.is_dir():
                    path.unlink(missing_ok=True)

    # --- Writing ---

    def save_best(self, model: nn.Module, facts: dict[str, Any]) -> None:
        """Write weights that did better than all before on the validation set.

        The next checkpoint knows them too: where the run goes on from an older one, those that
        it knows are written again.

        Raises:
            RunError: if the disk refuses.
        """
        with replacing(self.best_weights) as scratch:
            try:
                safetensors.torch.save_model(model, str(scratch))
            except safetensors.SafetensorError as error:  # the disk's words as text alone
                raise OSError(str(error)) from error
            self.best = finite({**facts, "sha256": digest(scratch)})
        write_json(self.best_file, self.best or {})

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write a checkpoint, with the length of the records so far.

        Raises:
            RunError: if the disk refuses; the checkpoints before this one are still there.
        """
        records = {each.path.name: each.written for each in (self.metrics, self.moves)}
        more = {"config": self._config_text, "records": records, "best": self.best}
        self.checkpoints.save(step, {**state, **more})

    def load_best(self, model: nn.Module) -> dict[str, Any]:
        """Load the best weights into a model and return what is known of them.

        Raises:
            RunError: if there are none, or they are not those that were saved.
        """
        if not self.best_file.exists():
            raise RunError(f"{self.path}: has no best weights yet: its first epoch has not ended")
        for _ in range(10):
            facts = read_json(self.best_file)
            if digest(self.best_weights) == facts.get("sha256"):
                break
            time.sleep(0.02)  # a run that goes on may be about to write the new facts
        else:
            raise RunError(
                f"{self.best_weights}: is damaged: its digest is not the one in "
                f"{self.best_file.name}; --resume writes those of an unfinished run again, else "
                "restore it from a backup"
            )
        try:
            safetensors.torch.load_model(model, str(self.best_weights))
        except Exception as error:  # the model may be the user's: whatever it provokes
            raise RunError(
                f"{self.best_weights}: does not fit the model of config.toml: "
                f"{' '.join(str(error).split())}"
            ) from error
        return facts
