"""Predictions as .csv, against the model called by hand."""

import csv
import importlib
import os
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
from annealtune.training.prediction import predict
from annealtune.training.runs import run
from annealtune.training.storage.directory import RunDirectory


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
    scaled = annealtune.load(directory)
    task = data.load("own_factories:pictures").task
    with torch.no_grad():
        inputs = (images[:, None] / 255 - task.mean[0]) / task.std[0]
        chances = scaled(inputs).softmax(1)
    assert [float(row["probability_dark"]) for row in rows] == pytest.approx(
        chances[:, 0].tolist(), abs=1e-5
    )
    for row in rows:
        dark, bright = float(row["probability_dark"]), float(row["probability_bright"])
        assert dark + bright == pytest.approx(1, abs=1e-6)
        assert row["class"] == ("dark" if dark > bright else "bright")


def test_tokens(trained, place):
    directory = trained("text", "next_token", epochs=8)
    np.save(place / "new.npy", np.array([0, 1, 2, 3, 4, 0]))
    predict(directory, place / "new.npy", place / "out.csv")
    (row,) = rows_of(place / "out.csv")
    tokens = torch.tensor([[0, 1, 2, 3, 4, 0]])
    expected = annealtune.load(directory)(tokens).argmax(-1)[0].tolist()
    assert [int(row[f"token_{position}"]) for position in range(6)] == expected
    assert expected[0] == expected[5]


def test_nothing_is_written_if_a_picture_is_damaged(trained, place):
    directory = trained("pictures", "small-cnn-w8")
    (place / "new").mkdir()
    Image.new("L", (8, 8)).save(place / "new" / "a.png")
    (place / "new" / "b.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"b.png cannot be read"):
        predict(directory, place / "new", place / "out.csv", batch_size=1)
    assert not (place / "out.csv").exists()


def test_a_model_that_gives_nan_says_so(trained, place, seal_again):
    directory = trained("table", "line")
    model = annealtune.load(directory)
    torch.nn.init.constant_(model.weight, 3e38)
    RunDirectory(directory).save_best(model, {"epoch": 1, "validation_loss": 0.5})
    seal_again(directory)
    np.save(place / "new.npy", np.full((1, 4), 1e3))
    with pytest.raises(RunError, match="the model gives NaN or infinity"):
        predict(directory, place / "new.npy", place / "out.csv")
    assert not (place / "out.csv").exists()


def test_names_with_commas_stay_one_column(trained, place):
    directory = trained("pictures", "small-cnn-w8")
    Image.new("L", (8, 8)).save(place / 'a, "b".png')
    predict(directory, place / 'a, "b".png', place / "out.csv")
    assert rows_of(place / "out.csv")[0]["input"] == 'a, "b".png'


def test_names_that_are_not_text_are_spelled_out(trained, place):
    directory = trained("pictures", "small-cnn-w8")
    (place / "new").mkdir()
    Image.new("L", (8, 8)).save(place / "new" / os.fsdecode(b"b\xffd.png"))
    predict(directory, place / "new", place / "out.csv")
    assert rows_of(place / "out.csv")[0]["input"] == r"b\udcffd.png"
