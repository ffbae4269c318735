"""A run in memory: data, model and method, and one epoch of training."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn import functional as F

from annealtune.errors import ConfigError, NonFiniteLossError
from annealtune.optim.random_state import RandomState
from annealtune.training import data, methods, models
from annealtune.training.config import RunConfig
from annealtune.training.data import augmentation
from annealtune.training.evaluation import Scores, evaluate, rank
from annealtune.training.records import EpochTally

_PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclasses.dataclass
class Best:
    """The best epoch so far, by validation accuracy and then by validation loss."""

    epoch: int = 0
    accuracy: float = -1.0
    loss: float = float("inf")

    def is_beaten_by(self, scores: Scores) -> bool:
        """Whether new scores are better; equal ones are not."""
        return rank(scores.accuracy, scores.loss) > rank(self.accuracy, self.loss)


class Minibatch:
    """The forwards of one training step, counted."""

    def __init__(self, session: Session, inputs: Tensor, labels: Tensor) -> None:
        self._session = session
        self._inputs = inputs
        self._labels = labels
        self.first_loss: float | None = None
        self.forwards = 0

    def loss(self) -> Tensor:
        """Return the mean cross-entropy."""
        return self._forward()[1]

    def error(self) -> Tensor:
        """Return one minus the accuracy."""
        scores, _ = self._forward()
        return 1 - (scores.argmax(1) == self._labels).float().mean()

    def _forward(self) -> tuple[Tensor, Tensor]:
        self.forwards += 1
        with self._session.autocast():
            scores = self._session.network(self._inputs)
            loss = F.cross_entropy(scores, self._labels)
        if self.first_loss is None:
            self.first_loss = loss.item()
        return scores, loss


class Session:
    """Everything a checkpoint holds.

    Args:
        config: with its device and thread count resolved.
        dataset: as loaded.

    Raises:
        ConfigError: if model, data and config do not fit together.
    """

    def __init__(self, config: RunConfig, dataset: data.Dataset) -> None:
        self.config = config
        self.device = torch.device(config.device)
        torch.manual_seed(config.seeds["init_seed"])
        self.model = models.build(
            config.model,
            channels=dataset.channels,
            image_size=dataset.image_size,
            classes=len(dataset.classes),
            pad=config.pad,
        ).to(self.device)
        self.channels_last = config.channels_last
        if self.channels_last is None:
            self.channels_last = any(isinstance(m, nn.Conv2d) for m in self.model.modules())
        if self.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network = torch.compile(self.model) if config.compile else self.model
        self.train_batches, self.validation_batches, self.test_batches = self._batches(dataset)
        self._check_last_minibatch()
        scaler = GradScaler(self.device.type) if config.precision == "fp16" else None
        self.method = _fitting(
            lambda: methods.build(config, self.model, len(self.train_batches), scaler),
            f"method = {config.method!r}: ",
        )
        self.tally = EpochTally()
        self.best = Best()
        self.epoch = 0  # epochs that are complete
        self.step = 0
        self.forwards = 0
        self.backwards = 0
        self.seconds = 0.0

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
        for inputs, labels in self.train_batches:
            minibatch = Minibatch(self, inputs, labels)
            info = self.method.step(minibatch)
            loss = minibatch.first_loss
            assert loss is not None
            if loss != loss or loss in (float("inf"), -float("inf")):
                raise NonFiniteLossError(
                    f"method = {self.config.method!r}: the training loss must be finite, got "
                    f"{loss} at step {self.step}: the run has diverged; try a smaller rate"
                )
            self.step += 1
            self.forwards += minibatch.forwards
            self.backwards += self.method.backwards_per_step
            self.tally.add(loss, info)
            self.seconds += time.perf_counter() - started
            yield loss
            started = time.perf_counter()

    def scores(self, check: Callable[[], None]) -> tuple[Scores, Scores]:
        """Return the scores on a sample of the training set and on the validation set."""
        sample = self.train_batches.sample(self.config.train_sample, epoch=self.epoch)
        training = evaluate(self.network, sample, self.autocast, check)
        return training, evaluate(self.network, self.validation_batches, self.autocast, check)

    def end_epoch(self, training: Scores, validation: Scores) -> dict[str, Any]:
        """Close the epoch: cool, count, and return its record."""
        record = {
            "epoch": self.epoch + 1,
            "step": self.step,
            **self.tally.metrics(),
            **self.method.readings(),
            "train_eval_loss": training.loss,
            "train_eval_accuracy": training.accuracy,
            "validation_loss": validation.loss,
            "validation_accuracy": validation.accuracy,
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
        random_state = RandomState.capture()
        return {
            "model": self.model.state_dict(),
            "method": self.method.state_dict(),
            "batches": self.train_batches.state_dict(),
            "tally": self.tally.state_dict(),
            "best": dataclasses.asdict(self.best),
            "counts": [self.epoch, self.step, self.forwards, self.backwards],
            "seconds": self.seconds,
            "random": {
                "cpu": random_state.cpu,
                "cuda": list(random_state.cuda),
                "mps": random_state.mps,
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.model.load_state_dict(state["model"])
        self.method.load_state_dict(state["method"])
        self.train_batches.load_state_dict(state["batches"])
        self.tally.load_state_dict(state["tally"])
        self.best = Best(**state["best"])
        self.epoch, self.step, self.forwards, self.backwards = state["counts"]
        self.seconds = state["seconds"]
        generators = state["random"]
        RandomState(generators["cpu"], tuple(generators["cuda"]), generators["mps"]).restore()

    def _check_last_minibatch(self) -> None:
        """Find out before the first epoch whether a last minibatch of one image can be trained."""
        count = self.train_batches.state_dict()["images"]
        if (count - 1) % self.config.batch_size:
            return
        image, _ = next(self.train_batches.sample(1, epoch=0))
        try:
            with torch.random.fork_rng(), torch.no_grad():
                copy.deepcopy(self.model).train()(image[:1])
        except ValueError as error:  # BatchNorm has no deviation to divide by
            raise ConfigError(
                f"batch_size = {self.config.batch_size}: the last minibatch of {count} images has "
                f"one image, too few for {self.config.model}; choose another batch_size or "
                f"train_size ({error})"
            ) from error

    def _batches(self, dataset: data.Dataset) -> tuple[data.Batches, data.Batches, data.Batches]:
        config, seed = self.config, self.config.seeds["data_seed"]
        split_seed = seed if config.split_seed is None else config.split_seed
        if config.train_size is not None:
            size = config.train_size
            dataset = _fitting(lambda: data.subset(dataset, size, split_seed))
        images, labels = dataset.train_images, dataset.train_labels
        test = dataset.test_images, dataset.test_labels
        if config.validate_on == "test":
            training, validation = (images, labels), test
        else:
            share = config.validation_fraction
            chosen, held_out = _fitting(
                lambda: data.split(len(labels), share, split_seed),
                f"validation_fraction = {share}: ",
            )
            training = images[chosen], labels[chosen]
            validation = images[held_out], labels[held_out]

        def batches(part: tuple[Tensor, Tensor], **options: Any) -> data.Batches:
            return data.Batches(
                *part,
                batch_size=config.batch_size,
                seed=seed,
                mean=dataset.mean,
                std=dataset.std,
                scale=dataset.scale,
                device=self.device,
                channels_last=bool(self.channels_last),
                **options,
            )

        augment = augmentation.by_name(config.augment)
        return (
            batches(training, reshuffle=config.reshuffle, augment=augment),
            batches(validation, shuffle=False),
            batches(test, shuffle=False),
        )


def _fitting(make: Callable[[], Any], key: str = "") -> Any:
    """Turn a value that does not fit the data or the model into an error of the config."""
    try:
        return make()
    except ValueError as error:
        raise ConfigError(f"{key}{error}") from None
