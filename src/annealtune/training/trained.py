"""A trained model, taken out of its run, also for programs that do not know annealtune."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from annealtune.errors import RunError
from annealtune.training import models
from annealtune.training.data.batches import Scaling
from annealtune.training.factories import in_one_line
from annealtune.training.storage.directory import RunDirectory
from annealtune.training.storage.files import (
    describe_provenance,
    explained,
    write_atomically,
    write_json,
)
from annealtune.training.task import Task

PROGRAM, WEIGHTS, FACTS = "model.pt2", "model.safetensors", "model.json"
FILES = (PROGRAM, WEIGHTS, FACTS)
FORMAT = 1
# How far outputs may differ where a compiled kernel sums in another order.
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5


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
        self.task = directory.task()
        with torch.random.fork_rng(devices=()):  # the initial weights are not what is wanted
            self.model = models.build(self.config.model, self.task, pad=self.config.pad).eval()
        self.facts = directory.load_best(self.model)
        self.weights = directory.best_weights
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


def export(run_dir: Path, out: Path) -> tuple[Path, ...]:
    """Write the best model of a run as a graph, as weights, and what must be known of both.

    ``model.pt2`` is a ``torch.export`` program for any number of samples. It takes inputs as the
    data holds them: normalising them is part of the graph. Before anything is written it is read
    back and compared with the model. ``model.safetensors`` are the weights of the model alone,
    which takes normalised inputs; ``model.json`` has shapes, dtypes, classes and versions.

    Raises:
        RunError: If the model cannot be exported or the copy does not agree with it, or the disk
            refuses.
    """
    trained = Trained(run_dir)
    program = _program(trained)
    is_exact = _check(trained, program)
    weights = trained.weights.read_bytes()
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / PROGRAM, program)
    write_atomically(out / WEIGHTS, weights)
    write_json(out / FACTS, _facts(trained, is_exact))
    return tuple(out / name for name in FILES)


def _program(trained: Trained) -> bytes:
    buffer = io.BytesIO()
    try:
        with _quiet():
            program = torch.export.export(
                trained.raw,
                (_inputs(trained.task, 2),),
                dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
            )
            torch.export.save(program, buffer)
    except Exception as error:  # the model may be the user's: whatever it provokes, say where
        raise RunError(
            f"model = {trained.config.model!r}: torch.export cannot turn it into a graph: "
            f"{in_one_line(error)[:400]}. annealtune.load(RUN) gives the model itself"
        ) from error
    return buffer.getvalue()


def _check(trained: Trained, program: bytes) -> bool:
    """Compare the program, read back, with the model; tell whether they agree to the last bit."""
    with _quiet():
        module = torch.export.load(io.BytesIO(program)).module()
    is_exact = True
    for samples in (1, 2, 5):
        inputs = _inputs(trained.task, samples)
        with torch.no_grad():
            ours, theirs = trained.raw(inputs), module(inputs)
        is_exact &= torch.equal(ours, theirs)
        if ours.shape != theirs.shape or not torch.allclose(ours, theirs, _RELATIVE, _ABSOLUTE):
            raise RunError(
                f"model = {trained.config.model!r}: the exported program does not agree with the "
                f"model for {samples} samples; nothing was written"
            )
    return is_exact


def _inputs(task: Task, samples: int) -> Tensor:
    """Return made-up inputs, the same each time."""
    source, shape = torch.Generator().manual_seed(samples), (samples, *task.input_shape)
    if task.input_type == "int64":
        return torch.randint(task.vocabulary or 1, shape, generator=source)
    if task.input_type == "uint8":
        highest = int(task.scale) + 1
        return torch.randint(highest, shape, generator=source).to(torch.uint8)
    return torch.randn(shape, generator=source)


def _facts(trained: Trained, is_exact: bool) -> dict[str, Any]:
    task, config = trained.task, trained.config
    return {
        "format": FORMAT,
        "kind": task.kind,
        "input": {"shape": ["samples", *task.input_shape], "dtype": task.input_type},
        "output": {"shape": ["samples", *task.output_shape], "dtype": "float32"},
        "classes": list(task.classes),
        "vocabulary": task.vocabulary,
        "normalisation": {
            "formula": "(input / scale - mean) / std" if task.mean else "none",
            "mean": list(task.mean),
            "std": list(task.std),
            "scale": task.scale,
            f"in {PROGRAM}": True,
            f"in {WEIGHTS}": False,
        },
        "image_size": config.image_size,
        "model": config.model,
        "data": config.data,
        "best": {key: value for key, value in trained.facts.items() if key != "sha256"},
        "same bits as the model": is_exact,
        "versions": describe_provenance(),
    }


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch says to its own developers from the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
