"""Predictions as .csv, against the model called by hand; inputs that are refused."""

import csv
import importlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import annealtune
from annealtune.errors import DataError, RunError
from annealtune.training import data
from annealtune.training.config import from_values
from annealtune.training.prediction import predict, read_inputs
from annealtune.training.runs import run
from annealtune.training.storage.directory import RunDirectory
from annealtune.training.task import Task


@pytest.fixture
def trained(place, monkeypatch):
    """Makes a run on data and a model of own_factories."""
    monkeypatch.syspath_prepend(Path(__file__).parent)

    def trained(source, model, **changes):
        model = model if model.startswith(("mlp", "small")) else f"own_factories:{model}"
        values = {"data": f"own_factories:{source}", "model": model, "epochs": 1, "threads": 1}
        run(from_values({**values, "batch_size": 16, **changes}), place / "run")
        return place / "run"

    return trained


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_numbers_by_hand(trained, place):
    """Standardized with the mean and deviation of the training columns, not with its own."""
    directory = trained("table", "line")
    (inputs, _), _, _ = importlib.import_module("own_factories").table()
    rows = np.array([[10.0, 11.0, 9.0, 10.5], [0.0, 0.0, 0.0, 0.0], [1e3, -1e3, 5.0, 7.0]])
    np.save(place / "new.npy", rows)
    assert predict(directory, place / "new.npy", place / "out.csv", batch_size=2) == 3
    weights = load_file(directory / "best.safetensors")
    columns = inputs.double().numpy()
    scaled = (rows - columns.mean(0)) / columns.std(0)
    expected = scaled @ weights["weight"].double().numpy()[0] + weights["bias"].item()
    found = rows_of(place / "out.csv")
    assert [row["input"] for row in found] == ["0", "1", "2"]
    assert [float(row["value"]) for row in found] == pytest.approx(expected, rel=1e-4)
    assert list(found[0]) == ["input", "value"]


def test_several_numbers_a_row(trained, place):
    directory = trained("table_of_two", "mlp-w16")
    (place / "new.csv").write_text("a,b,c,d\n10,10,10,10\n")
    predict(directory, place / "new.csv", place / "out.csv")
    (row,) = rows_of(place / "out.csv")
    expected = annealtune.load(directory, raw=True)(torch.full((1, 4), 10.0))[0].tolist()
    assert [float(row["value_0"]), float(row["value_1"])] == pytest.approx(expected, rel=1e-6)


def test_pictures_as_in_training(trained, place):
    """The test images of the run, as .png, against the formula of the normalisation."""
    directory = trained("pictures", "small-cnn-w8", epochs=3)
    _, (images, _), _ = importlib.import_module("own_factories").pictures()
    (place / "new" / "some").mkdir(parents=True)
    for number, image in enumerate(images):
        Image.fromarray(image.numpy()).save(place / "new" / "some" / f"{number:02}.png")
    predict(directory, place / "new", place / "out.csv", batch_size=7)
    rows = rows_of(place / "out.csv")
    assert [row["input"] for row in rows] == [f"some/{number:02}.png" for number in range(20)]
    task = data.load("own_factories:pictures").task
    with torch.no_grad():
        inputs = (images[:, None] / 255 - task.mean[0]) / task.std[0]
        chances = annealtune.load(directory)(inputs).softmax(1)
    assert [float(row["probability_dark"]) for row in rows] == pytest.approx(
        chances[:, 0].tolist(), abs=1e-5
    )
    for row in rows:
        dark, bright = float(row["probability_dark"]), float(row["probability_bright"])
        assert row["class"] == ("dark" if dark > bright else "bright")


def test_tokens(trained, place):
    directory = trained("text", "next_token", epochs=8)
    np.save(place / "new.npy", np.array([0, 1, 2, 3, 4, 0]))
    predict(directory, place / "new.npy", place / "out.csv")
    (row,) = rows_of(place / "out.csv")
    tokens = torch.tensor([[0, 1, 2, 3, 4, 0]])
    expected = annealtune.load(directory)(tokens).argmax(-1)[0].tolist()
    assert [int(row[f"token_{position}"]) for position in range(6)] == expected


def test_nothing_is_written_if_a_picture_is_damaged(trained, place):
    directory = trained("pictures", "small-cnn-w8")
    (place / "new").mkdir()
    Image.new("L", (8, 8)).save(place / "new" / "a.png")
    (place / "new" / "b.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"b.png"):
        predict(directory, place / "new", place / "out.csv", batch_size=1)
    assert not (place / "out.csv").exists()


def test_a_model_that_gives_nan_says_so(trained, place, seal_again):
    directory = trained("table", "line")
    model = annealtune.load(directory)
    torch.nn.init.constant_(model.weight, 3e38)
    RunDirectory(directory).save_best(model, {"epoch": 1, "validation_loss": 0.5})
    seal_again(directory)
    np.save(place / "new.npy", np.full((1, 4), 1e3))
    with pytest.raises(RunError, match="NaN or infinity"):
        predict(directory, place / "new.npy", place / "out.csv")
    assert not (place / "out.csv").exists()


# --- What is read ---

TABLE = Task("regression", (3,), "float32", (1,))
TEXT = Task("tokens", (4,), "int64", (4, 9), vocabulary=9)
GREY = Task("classification", (1, 2, 3), "uint8", (2,), ("a", "b"), scale=255)
COLOUR = Task("classification", (3, 2, 3), "uint8", (2,), ("a", "b"), scale=255)
DIGITS = Task("classification", (1, 2, 3), "uint8", (2,), ("a", "b"), scale=16)


def read(path, task, batch_size=100, image_size=None):
    batches = list(read_inputs(path, task, batch_size, image_size))
    return [name for names, _ in batches for name in names], torch.cat([b for _, b in batches])


@pytest.mark.parametrize(
    "text",
    [
        "1,2,3\n4,5,6",
        "age,sex,bmi\n1,2,3\n4,5,6\n",
        "\ufeffage,sex,bmi\r\n1,2,3\r\n\r\n4,5,6\r\n",
        '"1", 2 ,3e0\n4.0,"5",6\n',
    ],
)
def test_tables_with_a_header_and_without(tmp_path, text):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8", newline="")
    names, inputs = read(tmp_path / "t.csv", TABLE)
    assert names == ["0", "1"]
    assert inputs.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no row"),
        ("a,b,c\n", "no row"),
        ("1,2\n", "line 1.* 3 columns.*got 2"),
        ("1;2;3\n", "separated by commas"),
        ("age,sex,bmi\n1,male,3\n", "line 2.*got 'male'"),
        ("1,2,3\nnan,2,3\n", "sample 1"),
        ("1,2,1e300\n", "sample 0"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "t.csv", TABLE)


@pytest.mark.parametrize(
    ("task", "array", "expected"),
    [
        (TABLE, np.arange(6.0).reshape(2, 3), [[0, 1, 2], [3, 4, 5]]),
        (TABLE, np.arange(3), [[0, 1, 2]]),
        (TEXT, np.array([[0, 1, 8, 3]], dtype=np.int32), [[0, 1, 8, 3]]),
        (GREY, np.full((2, 2, 3), 7, np.int64), [[[[7] * 3] * 2]] * 2),
        (GREY, np.full((1, 1, 2, 3), 7.0), [[[[7] * 3] * 2]]),
    ],
)
def test_arrays_of_samples_or_of_one(tmp_path, task, array, expected):
    np.save(tmp_path / "a.npy", array)
    inputs = read(tmp_path / "a.npy", task)[1]
    assert inputs.tolist() == expected
    assert str(inputs.dtype) == f"torch.{task.input_type}"


@pytest.mark.parametrize(
    ("task", "array"),
    [
        (TABLE, np.zeros((2, 4))),
        (TABLE, np.zeros(())),
        (TABLE, np.zeros((0, 3))),
        (TABLE, np.array(["a", "b", "c"])),
        (TABLE, np.array([1, np.nan, 2])),
        (TEXT, np.array([[0, 1, 9, 3]])),
        (TEXT, np.array([[0, 1, 1.5, 3]])),
        (GREY, np.full((1, 1, 2, 3), 256)),
        (DIGITS, np.full((1, 1, 2, 3), 17)),
    ],
)
def test_arrays_that_are_refused(tmp_path, task, array):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DataError, match=r"a\.npy"):
        read(tmp_path / "a.npy", task)


def save(path, pixels, mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).convert(mode).save(path)


def test_a_folder_of_pictures_flat_or_not(tmp_path):
    for number, name in enumerate(("b.png", "a.png", "cats/z.bmp", ".hidden/n.png")):
        save(tmp_path / name, np.full((2, 3), number))
    (tmp_path / "notes.txt").write_text("not a picture")
    names, inputs = read(tmp_path, GREY, batch_size=2)
    assert names == ["a.png", "b.png", "cats/z.bmp"]
    assert inputs[:, 0, 0, 0].tolist() == [1, 0, 2]


def test_pictures_are_resized_only_if_the_run_did(tmp_path):
    save(tmp_path / "a.png", np.full((4, 4), 9))
    with pytest.raises(DataError, match=r"a.png is 4x4"):
        read(tmp_path, GREY)
    assert read(tmp_path, GREY, image_size=(2, 3))[1].tolist() == [[[[9] * 3] * 2]]


@pytest.mark.parametrize(("task", "mode"), [(TABLE, "L"), (DIGITS, "L"), (GREY, "RGB")])
def test_pictures_that_the_model_does_not_take(tmp_path, task, mode):
    save(tmp_path / "a.png", np.full((2, 3), 200), mode)
    with pytest.raises(DataError):
        read(tmp_path, task)


def test_grey_ones_for_a_model_of_colours(tmp_path):
    save(tmp_path / "a.png", np.full((2, 3), 9))
    assert read(tmp_path, COLOUR)[1].tolist() == [[[[9] * 3] * 2] * 3]


@pytest.mark.parametrize("name", ["missing.csv", "notes.txt", "Makefile", "a.npy", "t.csv", "."])
def test_other_files(tmp_path, name):
    for written in ("notes.txt", "Makefile", "a.npy", "t.csv"):
        (tmp_path / written).write_bytes(b"\xff\x93NUMPY\x01\x00")
    with pytest.raises(DataError):
        read(tmp_path / name, GREY)
