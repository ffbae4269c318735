"""A run in memory: data, model and method, one epoch of training, and what it is scored by."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import operator
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.amp import GradScaler

from annealtune.annealing.race import RaceInfo
from annealtune.errors import ConfigError, NonFiniteLossError
from annealtune.optim import StepInfo
from annealtune.optim.annealing_state import Moves
from annealtune.optim.keeper import Keeper
from annealtune.optim.run_state import RandomState
from annealtune.training import data, methods, models
from annealtune.training.config import RunConfig
from annealtune.training.data.batches import Samples, divide
from annealtune.training.methods import CountedMinibatch
from annealtune.training.task import Task
from annealtune.training.world import World

# Minibatches from which statistics of BatchNorm are computed anew for averaged weights.
_RECALIBRATED_ON = 50
_PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Session:
    """Everything a checkpoint holds; the config has its device and thread count resolved.

    Args:
        config: of the run.
        dataset: all of it, in every process.
        world: the processes that share the minibatches.

    Raises:
        ConfigError: if model, data and config do not fit together.
    """

    def __init__(
        self, config: RunConfig, dataset: data.Dataset, world: World | None = None
    ) -> None:
        self.config = config
        self.world = world = world or World()
        self.task = dataset.task
        _check_task(config, self.task)
        self.device = world.device(config.device)
        torch.manual_seed(config.seeds["init_seed"])
        self.model = models.build(config.model, self.task, pad=config.pad).to(self.device)
        convolves = any(isinstance(m, nn.Conv2d) for m in self.model.modules())
        channels_last = convolves and self.task.is_image
        if channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # Images of one size in minibatches of one size: the fastest kernels can be looked up once.
        if self.device.type == "cuda":
            torch.backends.cudnn.benchmark = self.task.is_image
        # Without gradients there is nothing for DDP to exchange.
        self.network = self.model if config.method == "ssa" else world.wrap(self.model)
        self.train_batches, self.validation_batches, self.test_batches = divide(
            config,
            dataset,
            device=self.device,
            channels_last=channels_last,
        )
        self._check_smallest_minibatches()
        scaler = GradScaler(self.device.type) if config.precision == "fp16" else None
        try:
            self.method = methods.build(config, self.model, len(self.train_batches), scaler)
        except ConfigError:
            raise
        except ValueError as error:  # a value that does not fit the model
            raise ConfigError(f"method = {config.method!r}: {error}") from None
        self.tally = EpochTally()
        self.keeper = Keeper(config.method, None, self.model)
        self.epoch = 0  # epochs that are complete
        self.step = 0
        self.forwards = 0
        self.backwards = 0
        self.seconds = 0.0
        world.seed_apart(config.seeds["init_seed"])

    def autocast(self) -> AbstractContextManager[object]:
        """Return the precision of a forward as a context."""
        if self.config.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=_PRECISIONS[self.config.precision])

    def train(self) -> Iterator[tuple[float, tuple[RaceInfo, ...]]]:
        """Train what is left of the epoch; yield each step's loss and the races that it ended."""
        if self.train_batches.epoch > self.epoch:
            return  # saved between the last step of the epoch and its end
        started = time.perf_counter()
        self.model.train()
        for minibatch in self._minibatches():
            known = len(self.method.races)
            info = self.method.step(minibatch)
            loss = minibatch.first_loss
            assert loss is not None
            if not math.isfinite(loss) and not self.method.recovers:
                raise NonFiniteLossError(
                    f"method = {self.config.method!r}: the training loss must be finite, got "
                    f"{loss} at step {self.step}: the run has diverged; try a smaller rate"
                )
            self.step += 1
            self.forwards += minibatch.forwards
            self.backwards += minibatch.backwards
            races = self.method.races[known:]
            self.tally.add(loss, info, races)
            self.seconds += time.perf_counter() - started
            yield loss, races
            started = time.perf_counter()

    def judged(self) -> AbstractContextManager[None]:
        """Give the model the weights that are scored and saved, which may be averages."""
        return self.method.judged(self.train_batches.sample(_RECALIBRATED_ON, epoch=self.epoch))

    @torch.no_grad()
    def score(self, batches: Iterable[Samples]) -> Scores:
        """Return the scores of the present weights on some minibatches.

        The model's mode and torch's random numbers are as before afterwards. Several processes take
        turns with the minibatches; each returns the scores over all of them.
        """
        # Not by the network: DDP would exchange buffers, also where no minibatch is left.
        task, model, random_state = self.task, self.model, RandomState.capture()
        training = model.training
        model.eval()
        found: list[_Found] = []
        for inputs, targets in itertools.islice(batches, self.world.rank, None, self.world.size):
            with self.autocast():
                outputs = task.arranged(model(inputs))
            total = task.loss(outputs.float(), targets, reduction="sum").item()
            correct = int((outputs.argmax(1) == targets).sum()) if task.has_accuracy else 0
            found.append(_Found(total, targets.numel(), len(targets), correct))
        model.train(training)
        random_state.put_back()  # a model may draw in evaluation too
        # As one process would have found them, one minibatch after the other.
        turns = itertools.zip_longest(*self.world.collect(found))
        loss, batch_means, count, samples, correct = 0.0, 0.0, 0, 0, 0
        for each in itertools.chain.from_iterable(turns):
            if each is not None:
                loss += each.loss
                batch_means += each.loss / each.targets
                count, samples = count + each.targets, samples + each.samples
                correct += each.correct
        accuracy = correct / count if task.has_accuracy else None
        return Scores(loss / count, accuracy, batch_means / samples)

    def is_best(self, validation: Scores) -> bool:
        """Keep the present weights if they score best so far; tell whether they do.

        That is by validation accuracy, if there is one, then by validation loss.
        """
        loss, accuracy = validation.loss, validation.accuracy
        if accuracy is None:
            return self.keeper.take(loss, step=self.step)
        return self.keeper.take(accuracy, step=self.step, maximize=True, then=loss)

    def end_epoch(self, training: Scores, validation: Scores) -> dict[str, Any]:
        """Close the epoch: cool, count, and return its record."""
        record = {
            "epoch": self.epoch + 1,
            "step": self.step,
            **self.tally.metrics(),
            **self.method.readings(),
            **training.named("train_eval"),
            **validation.named("validation"),
            "validation_paper_loss": validation.paper_loss,
            "forwards": self.forwards,
            "backwards": self.backwards,
            "training_seconds": self.seconds,
        }
        self.method.end_epoch()
        self.epoch += 1
        self.tally = EpochTally()
        return record

    def state_dict(self) -> dict[str, Any]:
        """Return all of it as tensors and plain data."""
        own = RandomState.capture().state_dict()
        return {
            "model": self.model.state_dict(),
            "method": self.method.state_dict(),
            "batches": self.train_batches.state_dict(),
            "data": self.task.digest,
            "tally": self.tally.state_dict(),
            **self.keeper.state_dict(),
            "counts": [self.epoch, self.step, self.forwards, self.backwards],
            "seconds": self.seconds,
            "random": own,
            **({} if self.world.size == 1 else {"ranks": self.world.collect(own)}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.model.load_state_dict(state["model"])
        self.method.load_state_dict(state["method"])
        self.train_batches.load_state_dict(state["batches"])
        self.tally.load_state_dict(state["tally"])
        self.keeper.load_state_dict(state)
        counts = map(operator.index, state["counts"])
        self.epoch, self.step, self.forwards, self.backwards = counts
        self.seconds = float(state["seconds"])
        self._restore_random(state)

    def _restore_random(self, state: dict[str, Any]) -> None:
        """Continue with the random numbers of this process; in another world begin new ones."""
        own = state.get("ranks", [state["random"]])
        RandomState(**own[self.world.rank if len(own) == self.world.size else 0]).put_back()
        if len(own) != self.world.size:
            self.world.seed_apart(self.config.seeds["init_seed"], self.step)

    def _minibatches(self) -> Iterator[CountedMinibatch]:
        """Yield what is left of the epoch."""
        for batch in self.train_batches:
            samples, weight = self.world.share(batch)
            yield CountedMinibatch(
                self.network,
                self.task,
                samples,
                self.autocast,
                weight=weight,
                mean=self.world.mean,
            )

    def _check_smallest_minibatches(self) -> None:
        """Find out before the first epoch whether a minibatch of one sample can be evaluated.

        Raises:
            ConfigError: if there will be one and BatchNorm has no deviation to divide by.
        """
        count, batch_size = self.train_batches.samples, self.config.batch_size
        if (count % batch_size or batch_size) // self.world.size > 1:
            return
        each = "" if self.world.size == 1 else f" for each of {self.world.size} processes"
        inputs, _ = next(self.train_batches.sample(1, epoch=0))
        try:
            with torch.random.fork_rng(), torch.no_grad():
                copy.deepcopy(self.model).train()(inputs[:1])
        except ValueError as error:
            raise ConfigError(
                f"batch_size = {batch_size}: the last minibatch of {count} samples has one sample"
                f"{each}, too few for {self.config.model}; choose another batch_size or train_size "
                f"({error})"
            ) from error


def _check_task(config: RunConfig, task: Task) -> None:
    """Refuse to judge by the error what has no classes.

    Raises:
        ConfigError: naming the key.
    """
    for key in ("accept_on", "objective"):
        if getattr(config.options, key, "loss") == "error" and not task.has_accuracy:
            raise ConfigError(
                f"{config.method}.{key} = 'error': needs classes, which regression does not have; "
                "take 'loss'"
            )


class EpochTally:
    """The sums of one epoch in progress; its state is plain data."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, float] = defaultdict(int)
        self._settings = Moves()
        self._races: list[dict[str, Any]] = []

    def add(self, loss: float, info: StepInfo | None, races: Iterable[RaceInfo] = ()) -> None:
        """Add one step: the loss before it, the move and the races that ended with it, if any.

        A loss that is not finite does not count.
        """
        sums = self._sums
        if math.isfinite(loss):
            sums["steps"] += 1
            sums["loss"] += loss
        self._races += [race.to_dict() for race in races]
        if info is None:
            return
        self._settings.add(info)
        sums["moves"] += 1
        sums["improved"] += info.improved
        sums["accepted"] += info.accepted
        sums["probability"] += info.accept_probability
        if info.accepted and isinstance(info.setting.get("lr"), int | float):
            sums["rated"] += 1
            sums["rate"] += info.setting["lr"]
        if not math.isfinite(info.new_loss):
            sums["non_finite"] += 1
        elif info.worsening > 0:
            sums["accepted_worsening" if info.accepted else "rejected_worsening"] += 1
            sums["worsening_probability"] += info.accept_probability

    def metrics(self) -> dict[str, Any]:
        """Return what the epoch gave; what is about moves and races only where there were any."""
        sums = self._sums
        metrics: dict[str, Any] = {"train_loss": _ratio(sums["loss"], sums["steps"])}
        if sums["moves"]:
            worsening = sums["accepted_worsening"] + sums["rejected_worsening"]
            metrics |= {
                "acceptance_rate": _ratio(sums["accepted"], sums["moves"]),
                "improvement_rate": _ratio(sums["improved"], sums["moves"]),
                "accepted_worsening": sums["accepted_worsening"],
                "rejected_worsening": sums["rejected_worsening"],
                "non_finite": sums["non_finite"],
                "accept_probability": _ratio(sums["probability"], sums["moves"]),
                "worsening_accept_probability": _ratio(sums["worsening_probability"], worsening),
            }
        if sums["rated"]:
            metrics["rate"] = sums["rate"] / sums["rated"]
        if self._races:
            metrics["races"] = list(self._races)
        return metrics

    def moves(self) -> list[dict[str, Any]]:
        """Return how often each setting was tried, improved the loss, was accepted."""
        return [
            {"setting": setting, "tried": tried, "improved": improved, "accepted": accepted}
            for setting, tried, improved, accepted in self._settings.state_dict()
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs, as plain data."""
        return {
            "sums": dict(self._sums),
            "settings": self._settings.state_dict(),
            "races": list(self._races),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._sums = defaultdict(int, state["sums"])
        self._settings.load_state_dict(state["settings"])
        self._races = list(state["races"])


class Scores(NamedTuple):
    """Loss and accuracy over a set of samples.

    Attributes:
        loss: mean cross-entropy over the samples or tokens, or mean squared error.
        accuracy: share of the samples or tokens whose highest score is the right one; None for
            regression.
        paper_loss: sum of the minibatches' mean losses divided by the number of samples, the scale
            of the paper's Table 1.
    """

    loss: float
    accuracy: float | None
    paper_loss: float

    def named(self, part: str) -> dict[str, float]:
        """Return loss and accuracy, if there is one, under the names that records have.

        Example:
            >>> Scores(0.5, None, 0.1).named("test")
            {'test_loss': 0.5}
        """
        named = {f"{part}_loss": self.loss}
        return named if self.accuracy is None else {**named, f"{part}_accuracy": self.accuracy}


class _Found(NamedTuple):
    """What was found on one minibatch: the sum of its losses, and how many of what there were."""

    loss: float
    targets: int
    samples: int
    correct: int


def _ratio(sum_: float, count: float) -> float:
    return sum_ / count if count else math.nan
