"""Train, evaluate, inspect: what they print, write and refuse."""

import json
import re
import sys
from pathlib import Path

import pytest

from annealtune.training import load

TINY = ("--model", "mlp-w16", "--train-size", "100", "--epochs", "1", "--threads", "1")
TRAINING = Path(__file__).parents[1] / "training"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--train-size", "5000"], "train_size = 5000: "),
        (["--validation-fraction", "0.0001"], "validation_fraction = 0.0001: "),
        (["--image-size", "8", "8"], "image-folder"),
        (["--model", "no_such_module:net"], "no_such_module"),
        (["--data", "json:lods"], "did you mean 'loads'?"),
    ],
)
def test_errors_found_once_the_data_is_there(refused, tmp_path, arguments, words):
    assert words in refused("train", *TINY, *arguments, "--out", "run")
    assert not (tmp_path / "run" / "config.toml").exists()


def test_missing_data_says_what_to_run(refused):
    text = refused("train", "--data", "cifar10", "--data-dir", "nowhere", code=1)
    assert "--download" in text


FACTORIES = """
import torch
from torch import nn
from annealtune.training.data import Dataset

def images(*, data_dir):
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (60, 3, 6, 6), dtype=torch.uint8, generator=generator)
    labels = torch.arange(60) % 3
    return Dataset(
        name="mine", classes=("a", "b", "c"), mean=(0.5,) * 3, std=(0.3,) * 3,
        train_inputs=pictures[:40], train_targets=labels[:40],
        test_inputs=pictures[40:], test_targets=labels[40:],
    )

def net(*, channels, image_size, classes):
    height, width = image_size
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, classes))

def one_image_is_too_few(*, channels, image_size, classes):
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, classes))

def tied(*, channels, image_size, classes):
    first, second = nn.Linear(64, 64), nn.Linear(64, 64)
    second.weight = first.weight
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.Linear(64, classes))

def without_weights(*, channels, image_size, classes):
    return nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(classes))

def broken(**_):
    raise KeyError("oh")
"""


class TestFactories:
    @pytest.fixture(autouse=True)
    def module(self, tmp_path):
        (tmp_path / "mine.py").write_text(FACTORIES)
        yield
        sys.modules.pop("mine", None)

    def test_from_the_working_directory_by_the_installed_program(self, run_cold, tmp_path):
        """Whose first place to look for modules is another; studies are not imported."""
        script = tmp_path / "elsewhere" / "program.py"
        script.parent.mkdir()
        script.write_text("from annealtune.cli import main\nmain()\n")
        command = [sys.executable, "-X", "importtime", script, "train", "--epochs", "1"]
        done = run_cold(*command, "--data", "mine:images", "--model", "mine:net")
        assert done.returncode == 0, done.stderr
        assert "weights: runs/mine.images-mine.net-self-tuned-seed0/best.safetensors" in done.stdout
        assert "annealtune.training" in done.stderr
        assert "annealtune.studies" not in done.stderr

    @pytest.mark.parametrize(
        ("model", "words"),
        [
            ("without_weights", "method = 'self-tuned': "),
            ("broken", "KeyError: 'oh'"),
        ],
    )
    def test_a_model_that_does_not_fit(self, refused, model, words):
        assert words in refused("train", *TINY, "--model", f"mine:{model}")

    def test_data_that_cannot_be_made(self, refused):
        assert "KeyError: 'oh'" in refused("train", *TINY, "--data", "mine:broken", code=1)

    def test_a_last_minibatch_of_one_image(self, refused):
        flags = ["--model", "mine:one_image_is_too_few", "--validate-on", "test"]
        text = refused("train", *flags, "--train-size", 41, "--batch-size", 20, "--out", "run")
        assert text.startswith("batch_size")

    @pytest.mark.parametrize("method", ["sgd-sa", "ssa", "adamw"])
    def test_weights_that_are_shared(self, annealtune, method):
        flags = ["--model", "mine:tied", "--method", method, "--out", "run"]
        assert annealtune("train", *TINY, *flags, "--epochs", 2, "--stop-after", 1)[0] == 0
        code, out, err = annealtune("train", "--out", "run", "--resume")
        assert code == 0, err
        model = load("run")
        assert model[3].weight is model[1].weight
        assert re.search(r"test accuracy \S+%", out)[0] in annealtune("evaluate", "run")[1]


def test_divergence_ends_with_a_clear_line(refused):
    flags = ["--method", "sgd", "--set", "sgd.lr=1e6", "--epochs", 30, "--model", "mlp"]
    last = refused("train", *flags, "--train-size", 200, code=1).splitlines()[-1]
    assert last.startswith("annealtune: method = 'sgd': the training loss must be finite, got ")


def test_a_result_that_is_not_finite_is_said_so(annealtune, tmp_path):
    """The weights explode in the last step: no training loss has shown it yet."""
    flags = ["--method", "sgd", "--set", "sgd.lr=1e38", "--epochs", 1, "--batch-size", 200]
    code, out, err = annealtune(
        "train", *flags, "--train-size", 100, "--model", "mlp", "--out", "run"
    )
    assert code == 0, err
    assert "test loss not finite" in out
    result = json.loads((tmp_path / "run" / "result.json").read_text(), parse_constant=pytest.fail)
    assert result["test_loss"] is None
    assert "loss not finite" in annealtune("inspect", "run")[1]


def test_train_ends_with_accuracy_and_weights(annealtune, tmp_path):
    code, out, err = annealtune("train", *TINY, "--out", "some/where/run")
    assert code == 0, err
    accuracy, weights, page = out.splitlines()
    assert re.fullmatch(
        r"test accuracy \d+\.\d\d%, test loss \d+\.\d{4}, best epoch 1 of 1", accuracy
    )
    assert weights == "weights: some/where/run/best.safetensors"
    assert page == "see it: annealtune report some/where/run --open"
    assert (tmp_path / "some" / "where" / "run" / "best.safetensors").exists()


def test_the_papers_protocol_is_said_to_be_optimistic(annealtune):
    _, out, _ = annealtune("train", *TINY, "--validate-on", "test")
    assert "optimistic" in out.splitlines()[0]


class TestResume:
    def test_without_a_run_it_says_what_to_do(self, refused, tmp_path):
        text = refused("train", "--resume")
        assert "there is no run in runs/digits-small-cnn-self-tuned-seed0;" in text
        assert list(tmp_path.iterdir()) == []

    def test_without_out_the_last_one_that_is_not_finished(self, annealtune, tmp_path):
        flags = ["train", *TINY, "--epochs", 2]
        name = "runs/digits-mlp-w16-self-tuned-seed0"
        assert annealtune(*flags)[0] == 0
        assert annealtune(*flags, "--stop-after", 1)[0] == 0
        assert not (tmp_path / f"{name}-2" / "result.json").exists()
        code, out, _ = annealtune(*flags, "--resume")
        assert code == 0
        assert f"weights: {name}-2/best.safetensors" in out
        assert not (tmp_path / f"{name}-3").exists()


@pytest.fixture
def trained(annealtune, monkeypatch):
    """A run on a table, in the working directory."""
    monkeypatch.syspath_prepend(TRAINING)
    flags = ["--data", "own_factories:table", "--model", "mlp-w16", "--epochs", 1]
    code, out, err = annealtune("train", *flags, "--out", "run")
    assert code == 0, err
    assert out.startswith("test loss ")
    yield "run"
    sys.modules.pop("own_factories", None)


def test_inspect_and_evaluate_know_no_accuracy(annealtune, trained):
    for command in ("inspect", "evaluate"):
        code, out, err = annealtune(command, trained)
        assert code == 0, err
        assert "loss" in out
        assert "accuracy" not in out
