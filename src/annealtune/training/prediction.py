"""What a trained model says of new inputs: pictures, arrays and tables in files."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from annealtune.errors import DataError, RunError, printable
from annealtune.training.data.image_folder import GREY, SUFFIXES, mode_of, read_picture
from annealtune.training.factories import in_one_line
from annealtune.training.storage.files import write_atomically
from annealtune.training.task import Task
from annealtune.training.trained import Trained

Batch = tuple[list[str], Tensor]


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


def read_inputs(
    path: Path, task: Task, batch_size: int, image_size: tuple[int, int] | None = None
) -> Iterator[Batch]:
    """Yield the inputs in a file or folder as the task's data holds them, with their names.

    Args:
        path: A picture or a folder of them, flat or in folders below; ``.npy``; or ``.csv``, one
            row a sample, with or without a header.
        task: What the model was trained for.
        batch_size: Samples yielded at once.
        image_size: What pictures were resized to in training, if they were.

    Raises:
        DataError: If something cannot be read, or is not what the model takes.
    """
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in SUFFIXES:
        return _pictures(path, task, batch_size, image_size)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file or folder")
    if suffix not in (".npy", ".csv"):
        raise DataError(
            f"{path}: must be a folder, .npy, .csv or a picture ({', '.join(SUFFIXES)}), got "
            f"{suffix or 'no ending'}"
        )
    array = _array(path) if suffix == ".npy" else _table(path, task)
    return _samples(_fitted(path, array, task), batch_size)


def _samples(inputs: Tensor, batch_size: int) -> Iterator[Batch]:
    for start in range(0, len(inputs), batch_size):
        batch = inputs[start : start + batch_size]
        yield [str(start + row) for row in range(len(batch))], batch


def _pictures(
    path: Path, task: Task, batch_size: int, image_size: tuple[int, int] | None
) -> Iterator[Batch]:
    if not task.is_image or task.input_type != "uint8" or task.input_shape[0] not in (1, 3):
        raise DataError(
            f"{path}: the model was not trained on pictures but on {task.input_type} samples of "
            f"shape {task.input_shape}; give them as .npy or .csv"
        )
    paths = [path]
    if path.is_dir():
        visible = (p for p in path.rglob("*") if not _is_hidden(p.relative_to(path)))
        paths = sorted(p for p in visible if p.suffix.lower() in SUFFIXES and p.is_file())
    if not paths:
        raise DataError(f"{path}: holds no picture ({', '.join(SUFFIXES)})")
    for start in range(0, len(paths), batch_size):
        chosen = paths[start : start + batch_size]
        pixels = np.stack([_picture(each, task, image_size) for each in chosen])
        names = [
            each.relative_to(path).as_posix() if each != path else each.name for each in chosen
        ]
        yield names, _fitted(path, pixels, task)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _picture(path: Path, task: Task, image_size: tuple[int, int] | None) -> NDArray[np.uint8]:
    channels, height, width = task.input_shape
    is_grey = mode_of(path) in GREY  # refuses pixels of more than 8 bits
    if channels == 1 and not is_grey:
        raise DataError(
            f"{path} is a colour picture, but the model was trained on grey ones; convert it first"
        )
    rule = f"the model was trained on {height}x{width}; resize it first"
    mode = "L" if channels == 1 else "RGB"
    return read_picture(path, mode, (height, width), rule, resize=image_size is not None)


def _array(path: Path) -> NDArray[Any]:
    try:
        with path.open("rb") as file:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # whatever a damaged or hostile header provokes
        raise DataError(f"{path} cannot be read as an array: {in_one_line(error)}") from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"{path}: must hold an array of numbers, got {array.dtype}")
    return array


def _table(path: Path, task: Task) -> NDArray[np.float64]:
    """Return the rows of a .csv, each one sample; the first may be a header."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as .csv: {error}") from error
    if lines and not any(_is_number(cell) for cell in lines[0][1]):
        del lines[0]  # the header
    if not lines:
        raise DataError(f"{path}: holds no row of numbers, separated by commas")
    width = math.prod(task.input_shape)
    for line, row in lines:
        if len(row) != width or not all(map(_is_number, row)):
            found = next((repr(cell) for cell in row if not _is_number(cell)), len(row))
            raise DataError(
                f"{path}, line {line}: must have {width} columns of numbers, the inputs that the "
                f"model takes and no target, got {found}"
            )
    rows = np.array([[float(cell) for cell in row] for _, row in lines])
    return rows.reshape(len(rows), *task.input_shape)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _fitted(path: Path, array: NDArray[Any], task: Task) -> Tensor:
    """Return an array as inputs of the task, once it is known to be that."""
    shape = task.input_shape
    forms = [array.shape[1:]] if array.ndim else []
    if shape in forms:
        samples = array
    elif array.shape == shape:
        samples = array[None]
    elif shape[0] == 1 and len(shape) == 3 and shape[1:] in forms:
        samples = array[:, None]
    else:
        raise DataError(
            f"{path}: must have the shape (samples, {', '.join(map(str, shape))}), got "
            f"{array.shape}"
        )
    if len(samples) == 0:
        raise DataError(f"{path}: holds no sample")
    if task.input_type == "float32":
        with np.errstate(over="ignore"):  # found below
            numbers = samples.astype(np.float32)
        if not np.isfinite(numbers).all():
            row = int(np.argwhere(~np.isfinite(numbers))[0][0])
            raise DataError(f"{path}: must be finite, got NaN or infinity in sample {row}")
        return torch.from_numpy(numbers)
    highest = (task.vocabulary or 1) - 1 if task.input_type == "int64" else int(task.scale)
    if not ((samples >= 0) & (samples <= highest) & (samples == np.floor(samples))).all():
        what = "tokens" if task.input_type == "int64" else "pixels"
        raise DataError(
            f"{path}: {what} must be whole numbers in 0..{highest}, as in training, got values "
            f"from {samples.min():g} to {samples.max():g}"
        )
    return torch.from_numpy(samples.astype(task.input_type))
