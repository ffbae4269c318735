"""The directory of a run: what is in it, and that only one process works in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from annealtune.errors import ConfigError, RunError
from annealtune.training.config import RunConfig, from_values, read_toml
from annealtune.training.plain_data import parse_toml
from annealtune.training.task import Task

from . import CONFIG_FILE, is_run, require_run, seal
from .best import BestWeights
from .changes import compare, config_changes, with_changes
from .checkpoint import Checkpoints
from .files import explained, finite, json_text, read_json, scratch_of, write_atomically
from .forms import check_epoch, check_moves, check_result
from .lock import Lock
from .noted_task import note_task, read_task
from .records import RecordFile
from .verify import check_run


class RunDirectory:
    """A run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / CONFIG_FILE
        self.task_file = self.path / seal.TASK_FILE
        self.metrics = RecordFile(self.path / seal.METRICS, partial(check_epoch, whole=True))
        self.moves = RecordFile(self.path / seal.MOVES, partial(check_moves, whole=True))
        self.best = BestWeights(self.path)
        self.result_file = self.path / seal.RESULT_FILE
        self.seal_file = self.path / seal.SEAL_FILE
        self.checkpoints = Checkpoints(self.path / seal.CHECKPOINTS)
        self.seal: dict[str, Any] | None = None
        self._config_text = ""
        self._task: list[Any] = []
        self._lock = Lock(self.path)

    @property
    def has_begun(self) -> bool:
        """Whether there is a run in this directory."""
        return is_run(self.path)

    @property
    def best_weights(self) -> Path:
        """The file of the best weights."""
        return self.best.file

    def check(self, *, large: bool = True) -> None:
        """Check every file against the seal of the run, if it has one; see `check_run`.

        Raises:
            RunError: naming what is damaged or missing, or cannot be read.
        """
        self.seal = check_run(self.path, large=large)

    def result(self) -> dict[str, Any] | None:
        """Return the result of a finished run, None before that."""
        if not self.result_file.exists():
            return None
        return read_json(self.result_file, partial(check_result, whole=True))

    def records(self) -> list[dict[str, Any]]:
        """Return the epochs as far as they were sealed; all of them in older runs."""
        return self.metrics.read(self._sealed_size(seal.METRICS))

    def move_records(self) -> list[dict[str, Any]]:
        """Return the moves of the epochs in the same way."""
        return self.moves.read(self._sealed_size(seal.MOVES))

    def _sealed_size(self, name: str) -> int | None:
        return None if self.seal is None else int(self.seal["files"][name][0])

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
            self.best.file,
            self.best.facts_file,
            self.result_file,
            self.seal_file,
        )
        found = [path.name for path in written if os.path.lexists(path)]
        # The manifest of step 0 is written before the config: a process was killed in between.
        if self.checkpoints.steps() or any(self.checkpoints.directory.glob("*.pt")):
            found.append(self.checkpoints.directory.name)
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
            self.best.file,
            self.best.new_file,
            self.best.facts_file,
            self.result_file,
            self.seal_file,
        )
        with explained(self.path):
            # safetensors writes aside too, under a name of this form.
            theirs = self.path.glob(".tmp??????") if self.has_begun else ()
            for path in (*map(scratch_of, ours), self.best.new_file, *theirs):
                if not path.is_dir():
                    path.unlink(missing_ok=True)
            self.checkpoints.remove_scratch()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory; it is free again when the process ends, however it ends.

        Raises:
            RunError: if another process holds it, or it cannot be written to.
        """
        with self._lock.held():
            yield

    def config(self) -> RunConfig:
        """Return the config of the run.

        Raises:
            ConfigError: if the directory holds no run.
        """
        require_run(self.path)
        return from_values(read_toml(self.config_file), str(self.config_file))

    def changed_config(self, config: RunConfig, step: int, changes: list[str]) -> str:
        """Return the text of the config with what is changed from a step on, noted in it."""
        text = self.seal["config"] if self.seal else self.config_file.read_text(encoding="utf-8")
        return with_changes(str(text), config, step, changes)

    def stored_config(self) -> RunConfig:
        """Return the config of the run as it was sealed, else as it lies there."""
        if self.seal is None:
            return self.config()
        return from_values(parse_toml(self.seal["config"]), str(self.config_file))

    def check_same(self, config: RunConfig) -> list[str]:
        """Check that a config is the run's own, apart from keys that may be changed.

        Returns:
            What is changed, in words.

        Raises:
            ConfigError: naming the keys that differ.
        """
        changes, refused = compare(
            self.stored_config(), config, is_finished=self.result_file.exists()
        )
        if refused:
            raise ConfigError(
                f"{self.path}: holds a run of another config: {'; '.join(refused)}. Choose "
                "another --out, or leave these keys as they are"
            )
        return changes

    def task(self) -> Task | None:
        """Return what the run learns; None where version 0.1 began it, which did not note it.

        Raises:
            RunError: if it cannot be read.
        """
        return read_task(self.task_file)

    def load(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """Return the state of the newest checkpoint that fits all other files, None at the start.

        Nothing is changed. Warns of damage that can be made good.

        Raises:
            RunError: if there is none, or something cannot be read.
        """
        if not self.has_begun:
            return None
        try:
            self._check_fixed_files()
        except seal.DamageError as damage:
            raise RunError(
                f"{self.path}: {damage}. Nothing was written: put it back as it was or restore it "
                "from a backup, else start again in another directory"
            ) from None
        bests: list[int] = []

        def check(found: dict[str, Any]) -> None:
            bests.append((found["best"] or {"epoch": 0})["epoch"])
            for name in seal.RECORDS:
                seal.check_size(self.path / name, found["files"][name], whole=False)
            try:
                seal.check_best(self.path, found["best"])
            except seal.DamageError:
                # Those of a later epoch, which comes again, are no damage.
                comes_again = max(bests) > found["epoch"]
                if not comes_again and not self.best.is_later(found["epoch"], self.metrics):
                    raise

        state = self.checkpoints.load(warn, check)
        self.seal = self.checkpoints.seal
        if state is None and self.seal is None and self._has_traces():
            raise RunError(
                f"{self.checkpoints.directory}: has no checkpoint, but the run has begun. Nothing "
                "was changed: restore the directory from a backup, or start again in another one"
            )
        return state

    def go_on(self, state: dict[str, Any] | None, warn: Callable[[str], None]) -> bool:
        """Forget what was recorded after a state; tell whether its best weights are there.

        Raises:
            RunError: if the disk refuses.
        """
        if self.seal is not None:
            sizes = [self.seal["files"][name][0] for name in seal.RECORDS]
            self.best.facts = self.seal["best"]
        else:
            sizes = [0, 0] if state is None else [int(size) for size in state["record_sizes"]]
            if state is not None:
                warn(f"{self.path}: was begun by an earlier version, whose records had no seal")
                self.best.facts = read_json(self.best.facts_file) if any(sizes) else None
        files = list(zip((self.metrics, self.moves), sizes, strict=True))
        for records, size in files:
            records.check_reaches(size)
        for records, size in files:
            records.cut(size)
        has_best = self.best.settle(warn)
        self.remove_scratch()
        return has_best

    def begin(self, config_text: str, task: Task) -> None:
        """Write what a run begins with, or note a changed config of one that goes on.

        Raises:
            RunError: if the disk refuses, or the data is not what the run began with.
        """
        self._lock.check()
        self._config_text = config_text
        self._task = seal.digest_of(json_text(task.to_dict()))
        if not self.has_begun:
            self.checkpoints.begin(self._sealed(epoch=0))
        if not self.has_begun or self.config_file.read_text(encoding="utf-8") != config_text:
            write_atomically(self.config_file, config_text.encode())
        note_task(self.task_file, task)

    def add_records(self, record: dict[str, Any], moves: dict[str, Any]) -> None:
        """Write down an epoch, and its moves if there were any.

        Raises:
            RunError: if the disk refuses.
        """
        self._lock.check()
        self.metrics.append(record)
        if moves["settings"]:
            self.moves.append(moves)

    def save_best(self, model: nn.Module, facts: dict[str, Any]) -> None:
        """Write weights that did better than all before on the validation set."""
        self._lock.check()
        self.best.add(model, facts)

    def save(self, step: int, epoch: int, state: dict[str, Any]) -> None:
        """Write a checkpoint that seals everything so far.

        Raises:
            RunError: if the disk refuses; the checkpoints before this one are still there.
        """
        self._lock.check()
        self.checkpoints.save(step, state, self._sealed(epoch))
        self.seal = self.checkpoints.seal
        self.best.commit()

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result of the run, and before it the seal over everything.

        Raises:
            RunError: if the disk refuses.
        """
        self._lock.check()
        self.checkpoints.tidy(result["steps"])  # a last save may have been killed before it did
        sealed = self._sealed(result["epochs"])
        named = {path.name: seal.digest(path) for path in (self.best.facts_file, self.best.file)}
        text = json_text(result)
        sealed["files"] |= {**named, seal.RESULT_FILE: seal.digest_of(text)}
        write_atomically(self.seal_file, seal.sealed_text({"format": seal.FORMAT, **sealed}))
        write_atomically(self.result_file, text)

    def load_best(self, model: nn.Module) -> dict[str, Any]:
        """Load the best weights into a model and return what is known of them.

        Raises:
            RunError: if there are none, or they are not those that were saved.
        """
        return self.best.load(model, None if self.seal is None else self.seal["best"])

    def _sealed(self, epoch: int) -> dict[str, Any]:
        return {
            "epoch": epoch,
            "config": self._config_text,
            "files": {
                seal.TASK_FILE: self._task,
                seal.METRICS: self.metrics.seal(),
                seal.MOVES: self.moves.seal(),
            },
            "best": finite(self.best.facts),
        }

    def _check_fixed_files(self) -> None:
        """Check what no checkpoint changes, by the newest seal that can be read.

        Raises:
            DamageError: if it was changed.
        """
        found = seal.newest_seal(self.path)
        if found is not None:
            config_changes(found["config"], self.config_file)
            if self.task_file.exists():  # else it is written again from the data
                seal.check_size(self.task_file, found["files"][seal.TASK_FILE])

    def _has_traces(self) -> bool:
        """Tell whether a run without a checkpoint had one: all sealed ones do."""
        traces = (self.metrics.path, self.moves.path, self.best.file, self.best.facts_file)
        return seal.is_marked(self.path) or any(os.path.lexists(path) for path in traces)
