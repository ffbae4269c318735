"""Runs on tables, texts and numbers: every method, every record, stopped and resumed."""

import importlib
import io
import json
import math
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from annealtune.errors import ConfigError, DataError, RunStoppedError
from annealtune.training import load
from annealtune.training.config import from_values
from annealtune.training.describe import describe_run
from annealtune.training.progress import Lines, Live
from annealtune.training.runs import run, score
from annealtune.training.stopping import StopRequest

METHODS = [
    {"method": "self-tuned"},
    {"method": "sgd-sa"},
    {"method": "sgd-sa", "sgd-sa": {"lr": [0.1, 0.01]}},
    {"method": "adamw-sa"},
    {"method": "ssa"},
    {"method": "scheduled-sgd"},
    {"method": "sgd"},
    {"method": "adamw"},
    {"method": "random-rate"},
]
TASKS = {
    "regression": ("own_factories:table", "own_factories:line"),
    "tokens": ("own_factories:text", "own_factories:next_token"),
}


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)


def config(task, **changes):
    source, model = TASKS.get(task, task)
    values = {"data": source, "model": model, "epochs": 2, "batch_size": 16, "threads": 1}
    return from_values({"device": "cpu", **values, **changes})


def records(directory):
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_every_method_trains_on_it(task, method, place):
    result = run(config(task, **method), place / "run")
    found = {*result, *json.loads((place / "run" / "best.json").read_text())}
    for record in records(place / "run"):
        found |= {*record}
        assert math.isfinite(record["validation_loss"])
    accuracies = {key for key in found if "accuracy" in key}
    assert ("test_accuracy" in accuracies) == (task == "tokens")
    assert task == "tokens" or not accuracies
    assert {"test_loss", "best_validation_loss", "last_validation_loss"} <= {*result}


def test_regression_against_the_error_by_hand(place):
    result = run(config("regression", epochs=8, method="sgd", sgd={"lr": 0.1}), place / "run")
    table = importlib.import_module("own_factories").table()
    (inputs, _), (test_inputs, test_targets) = table["train"], table["test"]
    weights = load_file(place / "run" / "best.safetensors")
    rows = (test_inputs.double() - inputs.double().mean(0)) / inputs.double().std(0, correction=0)
    predicted = rows @ weights["weight"].double().T + weights["bias"].double()
    error = ((predicted[:, 0] - test_targets.double()) ** 2).mean().item()
    assert result["test_loss"] == pytest.approx(error, rel=1e-5)
    assert error < 0.5 * test_targets.var().item()  # it has learnt something
    losses = [record["validation_loss"] for record in records(place / "run")]
    assert result["best_epoch"] == 1 + losses.index(min(losses))
    assert result["best_validation_loss"] == min(losses)
    assert result["last_validation_loss"] == losses[-1]


def test_the_best_epoch_may_be_an_early_one(place):
    """A rate that diverges slowly: the loss rises from the first epoch on."""
    kept = config("regression", method="sgd", epochs=4, sgd={"lr": 0.6}, reshuffle=False)
    result = run(kept, place / "run")
    losses = [record["validation_loss"] for record in records(place / "run")]
    assert losses[-1] > min(losses)
    assert result["best_epoch"] == 1 + losses.index(min(losses)) < 4


def test_tokens_against_scores_by_hand(place):
    result = run(config("tokens", epochs=6), place / "run")
    model = load(place / "run")
    tokens = torch.arange(400)[300:] % 5
    inputs, targets = tokens[:96].view(16, 6), tokens[1:97].view(16, 6)
    with torch.no_grad():
        chances = model(inputs).double().log_softmax(-1)
    loss = -chances.gather(-1, targets[..., None]).mean().item()
    assert result["test_loss"] == pytest.approx(loss, rel=1e-5)
    right = (chances.argmax(-1) == targets).double().mean().item()
    assert result["test_accuracy"] == pytest.approx(right)
    assert right > 0.5


@pytest.mark.parametrize(
    "task",
    [
        ("own_factories:rows_with_classes", "mlp-w16"),
        ("own_factories:table", "mlp-w16"),
        ("own_factories:table_of_two", "mlp-w16"),
        ("own_factories:table", "own_factories:flat"),
        ("own_factories:reviews", "own_factories:bag_of_tokens"),
        ("own_factories:pictures", "small-cnn-w8"),
        ("own_factories:float_pictures", "small-cnn-w8"),
        ("own_factories:waves", "mlp-w16"),
        ("own_factories:brightness", "small-cnn-w8"),
        ("own_factories:brightness", "vgg16-w32"),
    ],
    ids=str,
)
def test_every_kind_of_data_trains_and_is_scored(task, place):
    result = run(config(task, epochs=1), place / "run")
    scores = score(place / "run")
    assert scores["test_loss"] == result["test_loss"]
    assert scores.get("test_accuracy") == result.get("test_accuracy")
    told = dict(describe_run(place / "run"))
    assert ("accuracy" in told["test"]) == ("test_accuracy" in result)
    assert "loss" in told["best epoch"]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", ["self-tuned", "sgd-sa"])
def test_stopped_and_resumed_it_is_the_same_run(task, method, place):
    whole, parts = place / "whole", place / "parts"
    run(config(task, method=method, epochs=3), whole)
    with pytest.raises(RunStoppedError):
        run(config(task, method=method, epochs=3), parts, stop=StopRequest(after_epoch=1))
    run(config(task, method=method, epochs=3), parts)
    assert (whole / "best.safetensors").read_bytes() == (parts / "best.safetensors").read_bytes()
    for one, other in zip(records(whole), records(parts), strict=True):
        assert {k: v for k, v in one.items() if "seconds" not in k} == {
            k: v for k, v in other.items() if "seconds" not in k
        }


def test_keys_of_the_data_hold_for_every_kind(place):
    result = run(config("regression", train_size=40, validate_on="test"), place / "run")
    assert result["best_validation_loss"] == result["test_loss"]
    assert result["steps"] == 2 * math.ceil(40 / 16)


UNSEEDED = """
import itertools
import torch

calls = itertools.count()

def data():  # as a split without a seed: other samples at every call
    generator = torch.Generator().manual_seed(next(calls))
    order = torch.randperm(60, generator=generator)
    inputs, labels = torch.arange(60.0)[order, None], order % 2
    return (inputs[:40], labels[:40]), (inputs[40:], labels[40:])
"""


@pytest.fixture
def unseeded(place, monkeypatch):
    """A run of one epoch of two, whose data is another one each time that it is loaded."""
    (place / "unseeded.py").write_text(UNSEEDED)
    monkeypatch.syspath_prepend(place)
    made = from_values({"data": "unseeded:data", "model": "mlp-w8", "epochs": 2, "threads": 1})
    with pytest.raises(RunStoppedError):
        run(made, place / "run", stop=StopRequest(after_epoch=1))
    yield made
    sys.modules.pop("unseeded", None)


def test_a_run_goes_on_with_its_own_data_alone(unseeded, place):
    for known in (True, False):  # the checkpoint knows it too
        if not known:
            (place / "run" / "task.json").unlink()
        with pytest.raises(DataError, match="random_state"):
            run(unseeded, place / "run")


def test_a_run_is_scored_on_its_own_data_alone(unseeded, place):
    with pytest.raises(DataError, match="random_state"):
        score(place / "run")
    sys.modules["unseeded"].calls = iter([0])  # as in the first process
    assert score(place / "run")["epoch"] == 1


@pytest.mark.parametrize("shown", [Lines, Live])
def test_the_first_line_says_what_the_data_was_taken_for(shown, place):
    console = Console(file=io.StringIO(), width=200)
    wanted = config(("own_factories:reviews", "own_factories:bag_of_tokens"), epochs=1)
    run(wanted, place / "run", progress=shown(console))
    told = "own_factories:reviews (classification, 2 classes, vocabulary 4)"
    assert told in console.file.getvalue().splitlines()[0]


@pytest.mark.parametrize(
    ("task", "changes", "key"),
    [
        ("regression", {"pad": 8}, "pad"),
        ("regression", {"method": "sgd-sa", "sgd-sa": {"accept_on": "error"}}, "accept_on"),
        ("regression", {"method": "ssa", "ssa": {"objective": "error"}}, "objective"),
        ("regression", {"model": "small-cnn"}, "small-cnn"),
        ("tokens", {"model": "mlp"}, "mlp"),
        ("tokens", {"model": "own_factories:line"}, "own_factories:line"),
        ("regression", {"image_size": [8, 8]}, "image_size"),
        ("regression", {"train_size": 61}, "train_size"),
    ],
)
def test_what_makes_no_sense_for_such_data_is_refused(task, changes, key, place):
    with pytest.raises(ConfigError, match=key):
        run(config(task, **changes), place / "run")
    assert not (place / "run" / "config.toml").exists()


@pytest.mark.parametrize("on", ["loss", "error"])
def test_the_accept_test_on_tokens(on, place):
    options = {"accept_on": on, "lr": [0.5, 0.1]}
    run(config("tokens", method="sgd-sa", epochs=1, **{"sgd-sa": options}), place / "run")
