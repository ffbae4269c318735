"""The one entry for a run: the program and every engine call `run`."""

from __future__ import annotations

import contextlib
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch

from annealtune.errors import ConfigError, RunError, RunStoppedError
from annealtune.training import data
from annealtune.training.config import MOST_THREADS, RunConfig
from annealtune.training.devices import best_device, is_available
from annealtune.training.progress import Progress
from annealtune.training.session import Best, Session
from annealtune.training.stopping import StopRequest
from annealtune.training.storage import seal
from annealtune.training.storage.directory import RunDirectory
from annealtune.training.storage.files import read_json
from annealtune.training.storage.provenance import describe_provenance
from annealtune.training.tensorboard import EventFile

# What the last epoch's record and the result have in common, where the method has it.
_ALSO_IN_RESULT = (
    "rate",
    "extra_steps",
    "last_weights_validation_loss",
    "last_weights_validation_accuracy",
)


def run(
    config: RunConfig,
    run_dir: Path,
    *,
    resume: bool = True,
    progress: Progress | None = None,
    stop: StopRequest | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """Train, from data to best weights, or continue where the run was left.

    Args:
        config: what to run.
        run_dir: where everything is written.
        resume: continue a run that has begun and return the result of one that is finished;
            otherwise a directory with a run in it is refused.
        progress: is told what happens.
        stop: asked after every step, and before every epoch, whether to save and leave.
        command: the command line that starts the run, for its records.

    Returns:
        The content of ``result.json``.

    Raises:
        ConfigError: if config, data and model do not fit, or the directory holds another run.
        DataError: if the data is missing or damaged.
        RunError: if directory, lock, checkpoint or disk fail.
        RunStoppedError: if the run was asked to stop; its state is saved.
    """
    directory = RunDirectory(run_dir)
    with directory.locked():
        if not (directory.has_begun and resume):
            directory.check_free()
        progress = progress or Progress()
        state = None
        if directory.result_file.exists():
            directory.check()
        else:
            state = directory.load(progress.warn)
        config, changes = _resolve(config, directory)
        finished = directory.result()
        if finished is not None:
            return finished
        training = _Run(config, directory, progress, stop or StopRequest(), command)
        training.begin(state, changes)
        with training.events:
            return training.complete()


def score(run_dir: Path, data_dir: Path | None = None) -> dict[str, Any]:
    """Score the best weights of a run on its validation set and on the test set."""
    directory = RunDirectory(run_dir)
    directory.check()
    config = directory.config()
    if data_dir is not None:
        config = config.model_copy(update={"data_dir": data_dir})
    if not is_available(config.device):
        config = config.model_copy(update={"device": best_device()})
    session = _session(config, Progress())
    facts = directory.load_best(session.model)
    scores: dict[str, Any] = {"epoch": facts["epoch"]}
    parts = {"validation": session.validation_batches, "test": session.test_batches}
    for name, batches in parts.items():
        scores |= session.score(batches).named(name)
    return scores


class _Run:
    """A run from its directory's state to its end."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        progress: Progress,
        stop: StopRequest,
        command: str | None,
    ) -> None:
        self.config = config
        self.directory = directory
        self.progress = progress
        self.stop = stop
        self.session = _session(config, progress)
        self.command = command

    def begin(self, state: dict[str, Any] | None, changes: list[str]) -> None:
        """Continue from a state; note what the run begins with, or what was changed."""
        directory, session = self.directory, self.session
        if state is not None:
            self._restore(state)
        if not directory.go_on(state, self.progress.warn):
            session.best = Best()  # the next epoch, which was the best, makes them again
        self._races_told = len(session.method.races)
        self.stop.begin()
        self.events = EventFile(directory.path / "tensorboard", session.epoch, self.config)
        directory.begin(self._config_text(changes), session.task)
        self._saved_at = time.monotonic()

    def _config_text(self, changes: list[str]) -> str:
        if self.directory.has_begun:
            step = self.session.step
            return self.directory.changed_config(self.config, step, changes)
        facts: dict[str, Any] = {**describe_provenance(), "torch": torch.__version__}
        facts |= {"threads": self.config.threads, seal.MARK: seal.FORMAT}
        facts |= {} if self.command is None else {"command": self.command}
        return self.config.to_toml(facts)

    def complete(self) -> dict[str, Any]:
        session = self.session
        with (
            self.progress.running(
                self.config, session.task, len(session.train_batches), session.step
            ),
            _warnings_told(self.progress),
        ):
            while session.epoch < self.config.epochs:
                self._leave_if_far_enough()
                for loss in session.train():
                    self.progress.step(session, loss)
                    self._tell_races()
                    self._leave_if_asked()
                    self._save_if_due()
                self._end_epoch()
            return self._finish()

    def _tell_races(self) -> None:
        races = self.session.method.races
        for race in races[self._races_told :]:
            self.progress.race(race)
        self._races_told = len(races)

    def _end_epoch(self) -> None:
        session, started = self.session, time.perf_counter()
        try:
            last_weights = session.last_scores(self._leave_saved_if_asked)
            with session.judged():
                training, validation = session.scores(self._leave_saved_if_asked)
                if session.best.is_beaten_by(validation) or session.epoch == 0:
                    best = Best(session.epoch + 1, validation.accuracy, validation.loss)
                    facts = {"epoch": best.epoch, **validation.named("validation")}
                    self.directory.save_best(session.model, facts)
                    session.best = best
        except RunStoppedError:
            self._save()  # only now: the evaluation has put everything back as it was
            raise
        moves = {"epoch": session.epoch + 1, "settings": session.tally.moves()}
        record = {**session.end_epoch(training, validation), **last_weights}
        record["evaluation_seconds"] = time.perf_counter() - started
        self.directory.add_records(record, moves)
        self.events.add(record)
        self._save()
        self.progress.epoch(record)

    def _finish(self) -> dict[str, Any]:
        """Look at the test set, once, with the best weights."""
        session = self.session
        last = self.directory.records()[-1]
        races = [race.to_dict() for race in session.method.races]
        facts = self.directory.load_best(session.model)
        test = session.score(session.test_batches, self._leave_saved_if_asked)
        result: dict[str, Any] = {
            "epochs": session.epoch,
            "steps": session.step,
            "best_epoch": facts["epoch"],
            **{
                f"{when}_{name}": record[name]
                for when, record in (("best", facts), ("last", last))
                for name in ("validation_loss", "validation_accuracy")
                if name in record
            },
            **test.named("test"),
            "validated_on": self.config.validate_on,
            **{name: last[name] for name in _ALSO_IN_RESULT if name in last},
            **({"races": races} if races else {}),
            "forwards": session.forwards,
            "backwards": session.backwards,
            "training_seconds": session.seconds,
        }
        self.directory.finish(result)
        return read_json(self.directory.result_file)  # the same whether it is new or not

    def _restore(self, state: dict[str, Any]) -> None:
        """Put the session where it was saved."""
        try:
            self.session.load_state_dict(state)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise RunError(
                f"{self.directory.path}: its checkpoint does not fit the model and the data as "
                f"they are now: {' '.join(str(error).split())}. Put them back as they were, or "
                "start again in another directory"
            ) from error

    def _save(self) -> None:
        session = self.session
        self.directory.save(session.step, session.epoch, session.state_dict())
        self._saved_at = time.monotonic()

    def _save_if_due(self) -> None:
        every = self.config.checkpoint_every
        if every.endswith("m"):
            due = time.monotonic() - self._saved_at >= 60 * int(every[:-1])
        else:
            due = every != "epoch" and self.session.step % int(every) == 0
        if due:
            self._save()

    def _leave_if_asked(self) -> None:
        if self.stop.signal_number is not None:
            self._save()
            self._leave_saved_if_asked()

    def _leave_if_far_enough(self) -> None:
        """Leave between two epochs, where everything is saved already."""
        if self.stop.after_epoch is not None and self.session.epoch >= self.stop.after_epoch:
            self._leave(0, "far enough")

    def _leave_saved_if_asked(self) -> None:
        if self.stop.signal_number is not None:
            self._leave(self.stop.signal_number, signal.Signals(self.stop.signal_number).name)

    def _leave(self, signal_number: int, reason: str) -> NoReturn:
        session = self.session
        raise RunStoppedError(
            signal_number,
            f"{reason}: saved {self.directory.path} at step {session.step}, {session.epoch} of "
            f"{self.config.epochs} epochs complete; continue with --out {self.directory.path} "
            "--resume",
        )


@contextlib.contextmanager
def _warnings_told(progress: Progress) -> Iterator[None]:
    """Tell what SelfTuner warns of as lines of the run; all other warnings are as they were."""
    prefix = "SelfTuner: "
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def tell(message: Warning | str, *where: Any, **how: Any) -> None:
            text = str(message)
            if text.startswith(prefix):
                progress.warn(f"self-tuned: {text.removeprefix(prefix)}")
            else:
                shown(message, *where, **how)

        warnings.filterwarnings("always", message=prefix)
        warnings.showwarning = tell
        yield


def _session(config: RunConfig, progress: Progress) -> Session:
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    with progress.downloading() as show:
        dataset = data.load(
            config.data,
            data_dir=config.data_dir,
            download=config.download,
            image_size=config.image_size,
            progress=show,
        )
    return Session(config, dataset)


def _resolve(config: RunConfig, directory: RunDirectory) -> tuple[RunConfig, list[str]]:
    """Settle device and threads: as the run has them, else as this machine offers them.

    Returns:
        The config, and what it changes of the run's own.
    """
    stored = directory.stored_config() if directory.has_begun else None
    changes: list[str] = []
    update: dict[str, Any] = {}
    if config.device == "auto":
        update["device"] = stored.device if stored else best_device()
    if config.threads is None:
        update["threads"] = stored.threads if stored else min(torch.get_num_threads(), MOST_THREADS)
    resolved = config.model_copy(update=update)
    if stored is not None:
        changes = directory.check_same(resolved)
    if not is_available(resolved.device):
        raise ConfigError(
            f"device = {resolved.device!r}: is not available on this machine; take cpu or auto"
        )
    return resolved, changes
