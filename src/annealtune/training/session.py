"""A run in memory: data, model and method, and one epoch of training."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import operator
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import nn
from torch.amp import GradScaler

from annealtune.errors import ConfigError, NonFiniteLossError
from annealtune.optim.keeper import Keeper
from annealtune.optim.run_state import RandomState
from annealtune.training import data, methods, models
from annealtune.training.config import RunConfig
from annealtune.training.data.batches import Samples, divide
from annealtune.training.evaluation import Scores, evaluate
from annealtune.training.fitting import check_task
from annealtune.training.methods import CountedMinibatch
from annealtune.training.storage.records import EpochTally
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
        check_task(config, self.task)
        self.device = world.device(config.device)
        torch.manual_seed(config.seeds["init_seed"])
        self.model = models.build(config.model, self.task, pad=config.pad).to(self.device)
        self.channels_last = config.channels_last
        if self.channels_last is None:
            convolves = any(isinstance(m, nn.Conv2d) for m in self.model.modules())
            self.channels_last = convolves and self.task.is_image
        if self.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # Images of one size in minibatches of one size: the fastest kernels can be looked up once.
        if self.device.type == "cuda":
            torch.backends.cudnn.benchmark = self.task.is_image
        # Without gradients there is nothing for DDP to exchange.
        self.network = self.model if config.method == "ssa" else world.wrap(self.model)
        if config.compile:
            self.network = cast(nn.Module, torch.compile(self.network))
        self.train_batches, self.validation_batches, self.test_batches, self.held_out = divide(
            config,
            dataset,
            device=self.device,
            channels_last=bool(self.channels_last),
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

    def train(self) -> Iterator[float]:
        """Train what is left of the current epoch; yield the loss after every step."""
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
            self.tally.add(loss, info, self.method.races[known:])
            self.seconds += time.perf_counter() - started
            yield loss
            started = time.perf_counter()

    def judged(self) -> AbstractContextManager[None]:
        """Give the model the weights that are scored and saved, which may be averages."""
        return self.method.judged(self.train_batches.sample(_RECALIBRATED_ON, epoch=self.epoch))

    def scores(self, check: Callable[[], None]) -> tuple[Scores, Scores]:
        """Return the scores on a sample of the training set and on the validation set."""
        sample = self.train_batches.sample(self.config.train_sample, epoch=self.epoch)
        return self.score(sample, check), self.score(self.validation_batches, check)

    def score(self, batches: Iterable[Samples], check: Callable[[], None] = lambda: None) -> Scores:
        """Return the scores of the present weights on some minibatches."""
        # DDP would exchange buffers, also with a process for which no minibatch is left.
        network = self.network if self.world.size == 1 else self.model
        return evaluate(network, batches, self.autocast, self.task, check, self.world)

    def is_best(self, validation: Scores) -> bool:
        """Keep the present weights if they score best so far; tell whether they do.

        That is by validation accuracy, if there is one, then by validation loss.
        """
        loss, accuracy = validation.loss, validation.accuracy
        if accuracy is None:
            return self.keeper.take(loss, step=self.step)
        return self.keeper.take(accuracy, step=self.step, maximize=True, then=loss)

    def last_scores(self, check: Callable[[], None]) -> dict[str, float]:
        """Return what the last weights score on the validation set, where an average is judged."""
        if not self.method.averages:
            return {}
        return self.score(self.validation_batches, check).named("last_weights_validation")

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
        return {
            "model": self.model.state_dict(),
            "method": self.method.state_dict(),
            "batches": self.train_batches.state_dict(),
            "held_out": None if self.held_out is None else self.held_out.state_dict(),
            "tally": self.tally.state_dict(),
            **self.keeper.state_dict(),
            "counts": [self.epoch, self.step, self.forwards, self.backwards],
            "seconds": self.seconds,
            "random": RandomState.capture()._asdict(),
            **self._of_others(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.model.load_state_dict(state["model"])
        self.method.load_state_dict(state["method"])
        self.train_batches.load_state_dict(state["batches"])
        if self.held_out is not None:
            self.held_out.load_state_dict(state["held_out"])
        self.tally.load_state_dict(state["tally"])
        self.keeper.load_state_dict(state)
        counts = map(operator.index, state["counts"])
        self.epoch, self.step, self.forwards, self.backwards = counts
        self.seconds = float(state["seconds"])
        self._restore_random(state)

    def _of_others(self) -> dict[str, Any]:
        """Return the random numbers of all processes, where there are several."""
        if self.world.size == 1:
            return {}
        return {"ranks": self.world.collect(RandomState.capture()._asdict())}

    def _restore_random(self, state: dict[str, Any]) -> None:
        """Continue with the random numbers of this process; in another world begin new ones."""
        own = state.get("ranks", [state["random"]])
        RandomState(**own[self.world.rank if len(own) == self.world.size else 0]).restore()
        if len(own) != self.world.size:
            self.world.seed_apart(self.config.seeds["init_seed"], self.step)

    def _minibatches(self) -> Iterator[CountedMinibatch]:
        """Yield what is left of the epoch."""
        held_out = itertools.chain.from_iterable(itertools.repeat(self.held_out or [None]))
        for batch in self.train_batches:
            samples, weight = self.world.share(batch)
            yield CountedMinibatch(
                self.network,
                self.task,
                samples,
                next(held_out),
                self.autocast,
                weight,
                self.world.mean,
            )

    def _check_smallest_minibatches(self) -> None:
        """Find out before the first epoch whether a minibatch of one sample can be evaluated."""
        count, batch_size = self.train_batches.state_dict()["images"], self.config.batch_size
        smallest = self.world.smallest_share(count % batch_size or batch_size)
        if smallest == 1:
            each = "" if self.world.size == 1 else f" for each of {self.world.size} processes"
            self._check_one_sample(
                f"batch_size = {batch_size}: the last minibatch of {count} samples has one "
                f"sample{each}",
                "choose another batch_size or train_size",
            )
        if self.held_out is not None and self.held_out.batch_size == 1:
            self._check_one_sample(
                f"{self.config.method}.held_out_fraction: a minibatch that is held out has one "
                "sample",
                "choose a larger held_out_fraction",
            )

    def _check_one_sample(self, fault: str, remedy: str) -> None:
        inputs, _ = next(self.train_batches.sample(1, epoch=0))
        try:
            with torch.random.fork_rng(), torch.no_grad():
                copy.deepcopy(self.model).train()(inputs[:1])
        except ValueError as error:  # BatchNorm has no deviation to divide by
            raise ConfigError(
                f"{fault}, too few for {self.config.model}; {remedy} ({error})"
            ) from error
