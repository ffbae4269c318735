"""What a trained model says of new inputs, as a table."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from annealtune.errors import RunError, printable
from annealtune.training.input_files import read_inputs
from annealtune.training.storage.files import write_atomically
from annealtune.training.task import Task
from annealtune.training.trained import Trained


def predict(run_dir: Path, source: Path, out: Path, *, batch_size: int = 256) -> int:
    """Write what the best model of a run makes of new inputs to a .csv, one row for each.

    Inputs are normalised, and pictures resized, exactly as in training. The columns after
    ``input`` are ``class`` and ``probability_NAME`` of each class; ``value``, or ``value_N`` of
    several; or ``token_N``, the likeliest token at each position.

    Args:
        run_dir: The run.
        source: A picture or a folder of them, a .npy or a .csv.
        out: The .csv, which is written at once when everything is predicted.
        batch_size: Samples that go through the model at once.

    Returns:
        The number of rows.

    Raises:
        DataError: If the inputs cannot be read, or are not what the model takes.
        RunError: If the run has no best weights, the model gives NaN, or the disk refuses.
    """
    trained = Trained(run_dir)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["input", *_columns(trained.task)])
    count = 0
    for names, inputs in read_inputs(source, trained.task, batch_size, trained.config.image_size):
        with torch.no_grad():
            outputs = trained.raw(inputs).float()
        if not bool(outputs.isfinite().all()):
            raise RunError(f"{run_dir}: the model gives NaN or infinity for inputs of {source}")
        for name, row in zip(names, _rows(trained.task, outputs), strict=True):
            table.writerow([printable(name), *row])
        count += len(names)
    write_atomically(out, text.getvalue().encode())
    return count


def _columns(task: Task) -> list[str]:
    if task.kind == "classification":
        return ["class", *(f"probability_{name}" for name in task.classes)]
    if task.kind == "tokens":
        return [f"token_{position}" for position in range(task.input_shape[0])]
    if task.output_shape == (1,):
        return ["value"]
    places = itertools.product(*map(range, task.output_shape))
    return ["_".join(map(str, ("value", *place))) for place in places]


def _rows(task: Task, outputs: Tensor) -> Iterator[list[str]]:
    if task.kind == "classification":
        for row in outputs.softmax(1):
            yield [task.classes[int(row.argmax())], *_numbers(row)]
    elif task.kind == "tokens":
        for row in outputs.argmax(-1):
            yield [str(int(token)) for token in row]
    else:
        yield from map(_numbers, outputs.reshape(len(outputs), -1))


def _numbers(row: Tensor) -> list[str]:
    """Return numbers with all the digits that they have."""
    return [f"{value:.9g}" for value in row.tolist()]
