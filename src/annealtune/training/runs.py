"""The one entry for a run: the program and every engine call `run`."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch

from annealtune.errors import AnnealtuneError, RunError, RunStoppedError
from annealtune.training.config import RunConfig
from annealtune.training.devices import best_device, is_available
from annealtune.training.factories import in_one_line
from annealtune.training.opening import check_device, make_session, opened
from annealtune.training.progress import Progress, warnings_told
from annealtune.training.stopping import StopRequest
from annealtune.training.storage import seal
from annealtune.training.storage.directory import RunDirectory
from annealtune.training.storage.files import read_json
from annealtune.training.storage.noted_task import check_can_be_noted
from annealtune.training.storage.provenance import describe_provenance
from annealtune.training.tensorboard import EventFile
from annealtune.training.world import World, check_processes, joined

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
    with joined(config.device) as world:
        directory = RunDirectory(world.of_first(lambda: run_dir))
        shown = progress if world.is_first and progress is not None else Progress()
        with contextlib.ExitStack() as held:
            # The first process works in the directory, for all.
            world.of_first(lambda: held.enter_context(directory.locked()))
            found = world.of_first(lambda: opened(config, directory, shown.warn, resume=resume))
            check_device(found.config)
            world.of_first(lambda: check_processes(found.config, world.size))
            if found.result is not None:
                return found.result
            training = _Run(found.config, directory, shown, stop or StopRequest(), command, world)
            training.begin(found.state, found.changes)
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
    session = make_session(config, Progress())
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
        world: World,
    ) -> None:
        self.config = config
        self.directory = directory
        self.progress = progress
        self.stop = stop
        self.world = world
        self.command = command
        self.session = make_session(config, progress, world)
        check_can_be_noted(self.session.task)
        self._restored_at: int | None = None

    def begin(self, state: dict[str, Any] | None, changes: list[str]) -> None:
        """Continue from a state; note what the run begins with, or what was changed."""
        session, world = self.session, self.world
        if state is not None:
            self._restore(state)
        self._races_told = len(session.method.races)
        self.stop.begin()
        self.events: EventFile | contextlib.nullcontext[None] = contextlib.nullcontext()
        has_best = world.of_first(lambda: self._begin_directory(state, changes))
        if not has_best and session.keeper.has_weights:
            self._write_best_again()
        self._has_best = session.epoch > 0 and (has_best or session.keeper.has_weights)
        world.wishes = lambda: (self.stop.signal_number or 0, self._is_time_to_save())
        self._saved_at = time.monotonic()

    def _write_best_again(self) -> None:
        """Write the best weights that the checkpoint knows: a later epoch had replaced them."""
        with self.session.keeper.shown():
            if self.world.is_first:
                assert self.directory.best.facts is not None
                self.directory.save_best(self.session.model, dict(self.directory.best.facts))

    def _begin_directory(self, state: dict[str, Any] | None, changes: list[str]) -> bool:
        """Go on in the directory, or begin in it; tell whether the best weights are there."""
        directory, session = self.directory, self.session
        has_best = directory.go_on(state, self.progress.warn)
        self.events = EventFile(directory.path / "tensorboard", session.epoch, self.config)
        directory.begin(self._config_text(changes), session.task)
        return has_best

    def _config_text(self, changes: list[str]) -> str:
        if self.directory.has_begun:
            return self.directory.changed_config(self.config, self.session.step, changes)
        facts: dict[str, Any] = {**describe_provenance(), "torch": torch.__version__}
        facts |= {"threads": self.config.threads, seal.MARK: seal.FORMAT}
        facts |= {} if self.world.size == 1 else {"processes": self.world.size}
        facts |= {} if self.command is None else {"command": self.command}
        return self.config.to_toml(facts)

    def complete(self) -> dict[str, Any]:
        session = self.session
        with (
            self._checkpoint_named(),
            self.progress.running(
                self.config, session.task, len(session.train_batches), session.step
            ),
            warnings_told(self.progress),
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
        # As the next forward of DDP would do: the statistics of BatchNorm are those of the first.
        self.world.share_first(list(session.model.buffers()))
        try:
            last_weights = session.last_scores(self._leave_saved_if_asked)
            with session.judged():
                training, validation = session.scores(self._leave_saved_if_asked)
                if session.is_best(validation) or not self._has_best:
                    facts = {"epoch": session.epoch + 1, **validation.named("validation")}
                    if self.world.is_first:
                        self.directory.save_best(session.model, facts)
                    self._has_best = True
        except RunStoppedError:
            self._save()  # only now: the evaluation has put everything back as it was
            raise
        moves = {"epoch": session.epoch + 1, "settings": session.tally.moves()}
        record = {**session.end_epoch(training, validation), **last_weights}
        record["evaluation_seconds"] = time.perf_counter() - started
        if isinstance(self.events, EventFile):  # in the first process
            self.directory.add_records(record, moves)
            self.events.add(record)
        self._save()
        self.progress.epoch(record)

    def _finish(self) -> dict[str, Any]:
        """Look at the test set, once, with the best weights."""
        session = self.session
        last = self.world.of_first(lambda: self.directory.records()[-1])
        races = [race.to_dict() for race in session.method.races]
        facts = self.world.of_first(lambda: self.directory.load_best(session.model))
        self.world.share_first([*session.model.parameters(), *session.model.buffers()])
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
        return self.world.of_first(lambda: self._write_result(result))

    def _write_result(self, result: dict[str, Any]) -> dict[str, Any]:
        self.directory.finish(result)
        return read_json(self.directory.result_file)  # the same whether it is new or not

    def _restore(self, state: dict[str, Any]) -> None:
        """Put the session where it was saved."""
        session, sealed = self.session, self.directory.seal  # None in all processes but the first
        try:
            before = len(state.get("ranks", [None]))
            session.load_state_dict(state)
            found = (session.step, session.epoch)
            if sealed and self.world.size == 1 and found != (sealed["step"], sealed["epoch"]):
                raise ValueError(f"it is of step {session.step}, epoch {session.epoch}")
        except Exception as error:  # of our form but not ours: whatever it provokes
            raise RunError(
                f"{self.directory.path}: its checkpoint does not fit the model and the data as "
                f"they are now: {' '.join(str(error).split())}. Put them back as they were, or "
                "start again in another directory"
            ) from error
        self._restored_at = session.step
        if before != self.world.size:
            self.progress.warn(
                f"{self.directory.path}: was saved by {_processes(before)} and goes on with "
                f"{self.world.size}: the same minibatches, other random numbers in dropout"
            )

    @contextlib.contextmanager
    def _checkpoint_named(self) -> Iterator[None]:
        """Name the checkpoint where what it held may be why a run fails before the next one."""
        try:
            yield
        except AnnealtuneError:
            raise
        except Exception as error:
            if self._restored_at is None or self.world.size > 1:
                raise
            raise RunError(
                f"{self.directory.path}: went on from its checkpoint of step {self._restored_at} "
                f"and failed before the next one: {in_one_line(error)}. If a new run of this "
                "config does not, the checkpoint is not what the run saved: restore it from a "
                "backup. --debug shows where it failed"
            ) from error

    def _save(self) -> None:
        session = self.session
        state = session.state_dict()
        if self.world.is_first:
            self.directory.save(session.step, session.epoch, state)
        self._saved_at = time.monotonic()
        self._restored_at = None

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

    def _leave_if_far_enough(self) -> None:
        """Leave between two epochs, where everything is saved already."""
        if self.stop.after_epoch is not None and self.session.epoch >= self.stop.after_epoch:
            self._leave(0, "far enough")

    def _leave_saved_if_asked(self) -> None:
        """Leave in the middle of an evaluation; several processes go on to their next step."""
        if self.stop.signal_number is not None and self.world.size == 1:
            self._leave(self.stop.signal_number, signal.Signals(self.stop.signal_number).name)

    def _leave(self, signal_number: int, reason: str) -> NoReturn:
        session = self.session
        raise RunStoppedError(
            signal_number,
            f"{reason}: saved {self.directory.path} at step {session.step}, {session.epoch} of "
            f"{self.config.epochs} epochs complete; continue with --out {self.directory.path} "
            "--resume",
        )


def _processes(count: int) -> str:
    return "one process" if count == 1 else f"{count} processes"
