"""An autoencoder on Fashion-MNIST in Lightning, in the style of its first example."""

from __future__ import annotations

import contextlib
import functools
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torch.utils.data import DataLoader, TensorDataset

from annealtune.integrations.lightning import TunerCallback
from benchmarks.records import Record

from . import common
from .data import Images


class Autoencoder(lightning.LightningModule):
    def __init__(self, script: LitAutoencoder, method: str, planned: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 784))
        self.script, self.method, self.planned = script, method, planned

    def forward(self, images: Tensor) -> Tensor:
        return self.decoder(self.encoder(images.flatten(1)))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.script.loss(self, batch[0] / 255)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.script.loss(self, batch[0]))

    def configure_optimizers(self) -> Any:
        optimizer, scheduler = self.script.optimizer(self.method, self, self.planned)
        if scheduler is None:
            return optimizer
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class LitAutoencoder(common.Script):
    steps = 875
    batch_size = 64

    def load(self) -> None:
        self.images = Images(self.sources, "fashion-mnist")

    def held_out(self, part: common.Part) -> Iterator[tuple[Tensor, ...]]:
        return ((images,) for images, _ in self.images.held_out(part))

    def loss(self, model: nn.Module, *minibatch: Tensor) -> Tensor:
        (images,) = minibatch
        return F.mse_loss(model(images), images.flatten(1))

    def hand_tuned(self, model: nn.Module) -> common.Tuned:
        return Adam(model.parameters(), lr=1e-3), None

    def attempt(self, method: str, planned: int) -> Record:
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        torch.manual_seed(self.seed)
        module = Autoencoder(self, method, planned)
        output = common.Output(None, module)
        looks = Looks(output, method, planned, self.steps)
        # The looks first: what they keep is in the model until the other callback takes it out.
        callbacks = [looks, TunerCallback()] if method in common.BY_TUNER else [looks]
        trainer = lightning.Trainer(
            max_steps=planned,
            val_check_interval=_interval(planned),
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            accelerator="cpu",
            callbacks=callbacks,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        images, _ = self.images.training
        training = DataLoader(TensorDataset(images), self.batch_size, shuffle=True)
        validation = DataLoader(list(self.held_out("validation")), batch_size=None)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")  # of loaders with few workers
            warnings.filterwarnings("ignore", category=DeprecationWarning)  # torch's, of Lightning
            trainer.fit(module, training, validation)
        return self.record(module, trainer.optimizers[0], output, planned)


class Looks(lightning.Callback):
    """Keeps the best weights of Lightning's own validation."""

    def __init__(self, output: common.Output, method: str, planned: int, budget: int) -> None:
        self._output, self._method = output, method
        self._planned, self._budget = planned, budget
        self._swapped = contextlib.ExitStack()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._method in common.AVERAGED:
            self._output.average = common.averaged(trainer.optimizers[0], pl_module)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        common.check_length(trainer.optimizers[0], self._planned, self._budget)

    def on_validation_start(self, trainer: Any, *_: Any) -> None:
        self._swapped.enter_context(common.evaluating(trainer.optimizers[0]))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        score = functools.partial(pl_module.script.evaluate, pl_module, "validation")
        self._output.take(float(trainer.callback_metrics["val_loss"]), score)
        self._swapped.close()


def _interval(planned: int) -> int:
    """Return a number of steps, for 15 to 25 looks, of which the last is near the end."""
    candidates = range(max(1, planned // 25), max(1, planned // 15) + 1)
    return min(candidates, key=lambda steps: planned % steps)
