"""A trained model, taken out of its run."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn

from annealtune.training import data, models
from annealtune.training.config import RunConfig
from annealtune.training.data.batches import Scaling
from annealtune.training.storage.directory import RunDirectory
from annealtune.training.task import Task


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
    trained = Trained(Path(run_dir))
    return trained.raw if raw else trained.model


class Trained:
    """The best model of a run with what must be known to use it.

    Attributes:
        config: of the run.
        task: what the model was trained for.
        model: takes normalised inputs.
        raw: takes inputs as the data holds them.
        facts: the content of ``best.json``.
        weights: the file that holds them.
    """

    def __init__(self, run_dir: Path) -> None:
        directory = RunDirectory(run_dir)
        directory.check(large=False)  # the weights are checked when they are loaded
        self.config = directory.config()
        self.task = directory.task() or _task_of_data(self.config)
        with torch.random.fork_rng(devices=()):  # the initial weights are not what is wanted
            self.model = models.build(self.config.model, self.task, pad=self.config.pad).eval()
        self.facts = directory.load_best(self.model)
        self.weights = directory.best.loaded_from
        self.raw = Raw(self.task, self.model).eval()


class Raw(nn.Module):
    """A model that normalises its inputs itself, as in training."""

    def __init__(self, task: Task, model: nn.Module) -> None:
        super().__init__()
        ndim = 1 + len(task.input_shape)
        self.scaling = Scaling(task.mean, task.std, task.scale, ndim=ndim)
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Return what the model gives for inputs as the data holds them."""
        outputs: Tensor = self.model(self.scaling(inputs))
        return outputs


def _task_of_data(config: RunConfig) -> Task:
    """Return what a run learns that does not say so itself."""
    dataset = data.load(config.data, data_dir=config.data_dir, image_size=config.image_size)
    return dataset.task
