"""The one entry for a run: the program and every engine call `run`."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from annealtune.errors import ConfigError, DataError, RunError, RunStoppedError
from annealtune.training import data, models
from annealtune.training.config import MOST_THREADS, RunConfig
from annealtune.training.data.batches import Scaling
from annealtune.training.progress import Progress, warnings_told
from annealtune.training.provenance import cpu_name, describe_provenance
from annealtune.training.session import Session
from annealtune.training.stopping import StopRequest
from annealtune.training.storage.directory import RunDirectory
from annealtune.training.storage.files import locked, read_json
from annealtune.training.storage.seal import seal_run
from annealtune.training.world import World, joined

# Minibatches on which loss and accuracy of the training set are measured, as in the paper.
_TRAIN_SAMPLE = 10
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
        DataError: if the data is missing, damaged, or not what the run was trained on.
        RunError: if directory, lock, checkpoint or disk fail.
        RunStoppedError: if the run was asked to stop; its state is saved.
    """
    with joined(config.device) as world:
        directory = RunDirectory(world.of_first(lambda: run_dir))
        shown = progress if world.is_first and progress is not None else Progress()
        with contextlib.ExitStack() as held:
            # The first process works in the directory, for all.
            world.of_first(lambda: held.enter_context(locked(directory.path)))
            config, state, result = world.of_first(
                lambda: _opened(config, directory, shown.warn, resume=resume)
            )
            if not is_available(config.device):
                raise ConfigError(
                    f"device = {config.device!r}: is not available on this machine; take cpu or "
                    "auto"
                )
            if config.batch_size < world.size:
                raise ConfigError(
                    f"batch_size = {config.batch_size}: must be at least the number of processes, "
                    f"which share a minibatch, got {world.size} of them"
                )
            if result is not None:
                return result
            training = _Run(config, directory, shown, stop or StopRequest(), command, world)
            training.begin(state)
            return training.complete()


def score(run_dir: Path, data_dir: Path | None = None) -> dict[str, Any]:
    """Score the best weights of a run on its validation set and on the test set.

    Raises:
        DataError: if the data is not what the run was trained on.
    """
    directory = RunDirectory(run_dir)
    directory.check()
    config = directory.config()
    if data_dir is not None:
        config = config.model_copy(update={"data_dir": data_dir})
    if not is_available(config.device):
        config = config.model_copy(update={"device": best_device()})
    session = make_session(config)
    directory.check_data(session.task)
    facts = directory.load_best(session.model)
    scores: dict[str, Any] = {"epoch": facts["epoch"]}
    parts = {"validation": session.validation_batches, "test": session.test_batches}
    for name, batches in parts.items():
        scores |= session.score(batches).named(name)
    return scores


def load(run_dir: str | PathLike[str], *, raw: bool = False) -> nn.Module:
    """Return the best model of a run, in evaluation mode on the CPU.

    The data of the run is not needed.

    Args:
        run_dir: the directory of a run that has ended its first epoch.
        raw: take inputs as the data holds them, such as uint8 pixels, and normalise them as in
            training; otherwise the model takes normalised inputs.

    Raises:
        ConfigError: if the directory holds no run, or its model cannot be built.
        RunError: if there are no best weights, or they are damaged.
    """
    directory = RunDirectory(Path(run_dir))
    directory.check(large=False)  # the weights are checked when they are loaded
    config, task = directory.config(), directory.task()
    with torch.random.fork_rng(devices=()):  # the initial weights are not what is wanted
        model = models.build(config.model, task, pad=config.pad)
    directory.load_best(model)
    if raw:
        ndim = 1 + len(task.input_shape)
        model = nn.Sequential(Scaling(task.mean, task.std, task.scale, ndim=ndim), model)
    return model.eval()


def make_session(config: RunConfig, world: World | None = None) -> Session:
    """Load the data and build model and method.

    Raises:
        ConfigError: if they do not fit together.
        DataError: if the data is missing or damaged, or not the same in every process.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    world = world or World()

    def load() -> data.Dataset:
        return data.load(
            config.data,
            data_dir=config.data_dir,
            download=config.download,
            image_size=config.image_size,
        )

    first: list[data.Dataset] = []
    world.of_first(lambda: first.append(load()))  # what it downloads is there for the others
    dataset = first[0] if first else load()
    digests = set(world.collect(dataset.task.digest))

    def check_alike() -> None:
        if len(digests) > 1:
            raise DataError(
                f"data = {config.data!r}: must be the same in every process; a factory that splits "
                "or shuffles at random needs a fixed seed, such as random_state=0"
            )

    world.of_first(check_alike)  # which speaks for all
    return Session(config, dataset, world)


def best_device() -> str:
    """Return the fastest device of this machine."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def is_available(name: str) -> bool:
    """Tell whether this machine has a device."""
    kind, _, number = name.partition(":")
    if kind == "cuda":
        return int(number or 0) < torch.cuda.device_count()
    return kind != "mps" or torch.backends.mps.is_available()


def _opened(
    config: RunConfig, directory: RunDirectory, warn: Callable[[str], None], *, resume: bool
) -> tuple[RunConfig, dict[str, Any] | None, dict[str, Any] | None]:
    """Look at the directory of a run before anything is changed there.

    Returns:
        The config with device and threads as the run has them, else as this machine offers them;
        the state that was saved last, None at the start and at the end; the result of a run that is
        finished.

    Raises:
        ConfigError: if it holds another run, or one that is not to be continued.
        RunError: if something is damaged or cannot be read.
    """
    state = None
    threads: int | None
    if not (directory.has_begun and resume):
        directory.check_free()
        device, threads = best_device(), min(torch.get_num_threads(), MOST_THREADS)
    else:
        if directory.result_file.exists():
            directory.check()
        else:
            state = directory.load(warn)
        device, threads = directory.config().device, directory.config().threads
    update: dict[str, Any] = {"device": device} if config.device == "auto" else {}
    update |= {"threads": threads} if config.threads is None else {}
    config = config.model_copy(update=update)
    if directory.has_begun:
        directory.check_same(config)
    return config, state, directory.result()


@dataclasses.dataclass
class _Run:
    """A run from its directory's state to its end."""

    config: RunConfig
    directory: RunDirectory
    progress: Progress
    stop: StopRequest
    command: str | None
    world: World

    def __post_init__(self) -> None:
        self.session = make_session(self.config, self.world)

    def begin(self, state: dict[str, Any] | None) -> None:
        """Continue from a state; note what the run begins with."""
        session, world = self.session, self.world
        digest = "" if state is None else state["data"]
        world.of_first(lambda: self.directory.check_data(session.task, digest))
        if state is not None:
            self._restore(state)
        self.stop.begin()
        self._has_best = world.of_first(
            lambda: self.directory.begin(state, self.config, self._environment(), session.task)
        )
        if state is not None and not self._has_best and session.keeper.has_weights:
            # A later epoch, which comes again, had replaced those that the checkpoint knows.
            with session.keeper.shown():
                if world.is_first:
                    self.directory.save_best(session.model, state["best"])
            self._has_best = True
        world.wishes = lambda: (self.stop.signal_number or 0, self._is_time_to_save())
        self._saved_at = time.monotonic()

    def _environment(self) -> dict[str, Any]:
        """Return what the run is begun with."""
        facts: dict[str, Any] = {**describe_provenance(), "torch": torch.__version__}
        # The last bits of a run depend on both.
        facts |= {"cpu": cpu_name(), "threads": self.config.threads}
        facts |= {} if self.world.size == 1 else {"processes": self.world.size}
        return facts if self.command is None else {**facts, "command": self.command}

    def complete(self) -> dict[str, Any]:
        session = self.session
        with self.progress.running(session), warnings_told(self.progress):
            while session.epoch < self.config.epochs:
                self._leave_between_epochs()
                for loss, races in session.train():
                    self.progress.step(session, loss)
                    for race in races:
                        self.progress.race(race)
                    self._leave_if_asked()
                    self._save_if_due()
                self._end_epoch()
            return self._finish()

    def _end_epoch(self) -> None:
        session, started = self.session, time.perf_counter()
        # As the next forward of DDP would do: the statistics of BatchNorm are those of the first.
        self.world.share_first(list(session.model.buffers()))
        last_weights: dict[str, float] = {}
        if session.method.averages:
            last = session.score(session.validation_batches)
            last_weights = last.named("last_weights_validation")
        with session.judged():
            sample = session.train_batches.sample(_TRAIN_SAMPLE, epoch=session.epoch)
            training = session.score(sample)
            validation = session.score(session.validation_batches)
            if session.is_best(validation) or not self._has_best:
                facts = {"epoch": session.epoch + 1, **validation.named("validation")}
                if self.world.is_first:
                    self.directory.save_best(session.model, facts)
                self._has_best = True
        moves = session.tally.moves()
        record = {**session.end_epoch(training, validation), **last_weights}
        record["evaluation_seconds"] = time.perf_counter() - started
        if self.world.is_first:
            self.directory.metrics.append(record)
            if moves:
                self.directory.moves.append({"epoch": record["epoch"], "settings": moves})
        self._save()
        self.progress.epoch(record)

    def _finish(self) -> dict[str, Any]:
        """Look at the test set, once, with the best weights."""
        session = self.session
        last = self.world.of_first(lambda: self.directory.metrics.read()[-1])
        races = [race.to_dict() for race in session.method.races]
        facts = self.world.of_first(lambda: self.directory.load_best(session.model))
        self.world.share_first([*session.model.parameters(), *session.model.buffers()])
        test = session.score(session.test_batches)
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
        self.world.of_first(lambda: seal_run(self.directory.path, result))
        # The same whether it is new or not.
        return self.world.of_first(lambda: read_json(self.directory.result_file))

    def _restore(self, state: dict[str, Any]) -> None:
        """Put the session where it was saved."""
        before = len(state.get("ranks", [None]))
        try:
            self.session.load_state_dict(state)
        except Exception as error:  # of another model or data set: whatever it provokes
            raise RunError(
                f"{self.directory.path}: its checkpoint does not fit the model and the data as "
                f"they are now: {' '.join(str(error).split())}. Put them back as they were, or "
                "start again in another directory"
            ) from error
        if before != self.world.size:
            self.progress.warn(
                f"{self.directory.path}: was saved by {before} process{'es' * (before > 1)} and "
                f"goes on with {self.world.size}: the same minibatches, other random numbers in "
                "dropout"
            )

    def _save(self) -> None:
        state = self.session.state_dict()
        if self.world.is_first:
            self.directory.save(self.session.step, state)
        self._saved_at = time.monotonic()

    def _save_if_due(self) -> None:
        every = self.config.checkpoint_every
        if every.endswith("m"):
            several = self.world.size > 1  # the clocks of several processes differ
            due = self.world.is_save_due if several else self._is_time_to_save()
        else:
            due = every != "epoch" and self.session.step % int(every) == 0
        if due:
            self._save()

    def _is_time_to_save(self) -> bool:
        every = self.config.checkpoint_every
        if not every.endswith("m"):
            return False
        return time.monotonic() - self._saved_at >= 60 * int(every[:-1])

    def _leave_if_asked(self) -> None:
        asked = self.stop.signal_number
        if self.world.size > 1:  # one of them was asked, and all have heard of it in this step
            asked = self.world.signal_number or None
        if asked is not None:
            self._save()
            self._leave(asked, signal.Signals(asked).name)

    def _leave_between_epochs(self) -> None:
        """Leave where everything is saved already; several processes go on to their next step."""
        if self.stop.after_epoch is not None and self.session.epoch >= self.stop.after_epoch:
            self._leave(0, "far enough")
        if self.stop.signal_number is not None and self.session.epoch and self.world.size == 1:
            self._leave(self.stop.signal_number, signal.Signals(self.stop.signal_number).name)

    def _leave(self, signal_number: int, reason: str) -> NoReturn:
        session = self.session
        raise RunStoppedError(
            signal_number,
            f"{reason}: saved {self.directory.path} at step {session.step}, {session.epoch} of "
            f"{self.config.epochs} epochs complete; continue with --out {self.directory.path} "
            "--resume",
        )
