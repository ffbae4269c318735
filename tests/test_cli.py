"""The program: help for all, errors in a line with an exit code, nothing heavy too early."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from annealtune import cli
from annealtune.training import load
from annealtune.training.config import RunConfig, from_values
from annealtune.training.options import Options

SOURCE = Path(__file__).parents[1] / "src"
TINY = ("--model", "mlp-w16", "--train-size", "100", "--epochs", "1", "--threads", "1")


@pytest.fixture
def annealtune(tmp_path, monkeypatch, capsys):
    """Runs the program in this process and in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def annealtune(*arguments):
        monkeypatch.setattr(sys, "argv", ["annealtune", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        code = left.value.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return annealtune


@pytest.fixture
def refused(annealtune):
    """Runs the program, expects one or two lines and an exit code, returns the lines."""

    def refused(*arguments, code=2):
        found, out, err = annealtune(*arguments)
        assert found == code, err
        assert out == ""
        assert "Traceback" not in err
        assert err.startswith("annealtune: ")
        assert len(err.splitlines()) <= 2
        return err.removeprefix("annealtune: ")

    return refused


def blocks():
    for name, field in RunConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Options):
            yield field.alias or name, field.annotation


class TestHelp:
    def test_of_the_program(self, annealtune):
        code, out, _ = annealtune("--help")
        assert code == 0
        for command in ("train", "config", "evaluate", "inspect", "--debug"):
            assert command in out

    @pytest.mark.parametrize("command", ["train", "config"])
    def test_explains_every_key(self, annealtune, command):
        code, out, _ = annealtune(command, "--help")
        assert code == 0
        words = " ".join(out.split()).replace("- ", "-")
        names = {name for name, _ in blocks()}
        for name, field in RunConfig.model_fields.items():
            if (field.alias or name) in names:
                continue
            flag = "--" + name.replace("_", "-")
            assert re.search(rf"{flag}\b.*{re.escape(field.description.split()[0])}", words), name
            assert field.description.replace("- ", "-") in words, name
        for block, options in blocks():
            for key, field in options.model_fields.items():
                assert f"{block}.{key}: {field.description} [" in out, key

    def test_shows_the_choices(self, annealtune):
        _, out, _ = annealtune("train", "--help")
        assert (
            "self-tuned|sgd-sa|adamw-sa|ssa|scheduled-sgd|sgd|sgd-momentum|adamw|random-rate" in out
        )
        assert "fp32|bf16|fp16" in out

    def test_without_arguments(self, annealtune):
        _, out, err = annealtune()
        assert "Usage" in out + err


class TestConfig:
    def test_prints_what_it_reads(self, annealtune, tmp_path):
        (tmp_path / "a.toml").write_text(
            'method = "ssa"\nepochs = 7\nseed = 3\n[ssa]\nradius = 0.5\n[sgd]\nlr = 0.3\n'
        )
        code, first, _ = annealtune("config", "a.toml")
        assert code == 0
        expected = from_values({"method": "ssa", "epochs": 7, "seed": 3, "ssa": {"radius": 0.5}})
        assert from_values(tomllib.loads(first)).to_dict() == expected.to_dict()
        (tmp_path / "b.toml").write_text(first)
        assert annealtune("config", "b.toml") == (0, first, "")

    def test_flags_win_over_assignments_and_assignments_over_the_file(self, annealtune, tmp_path):
        (tmp_path / "a.toml").write_text(
            "method = 'sgd-sa'\nepochs = 7\nseed = 3\nbatch_size = 10\n[sgd-sa]\nlr = [1.0]"
        )
        flags = ["--epochs", 9, "--set", "epochs=8", "--set", "seed=4", "--set", "sgd-sa.lr=[2.0]"]
        _, out, _ = annealtune("config", "a.toml", *flags)
        found = tomllib.loads(out)
        assert (found["epochs"], found["seed"], found["batch_size"]) == (9, 4, 10)
        assert found["sgd-sa"]["lr"] == [2.0]

    def test_every_flag_reaches_its_key(self, annealtune):
        values = {
            "data": "image-folder",
            "data_dir": "some/where",
            "download": True,
            "image_size": [16, 24],
            "train_size": 100,
            "augment": "crop-flip",
            "model": "resnet18-w4",
            "pad": 8,
            "method": "adamw",
            "epochs": 3,
            "batch_size": 5,
            "reshuffle": False,
            "seed": 1,
            "init_seed": 2,
            "data_seed": 3,
            "split_seed": 9,
            "decision_seed": 4,
            "validation_fraction": 0.25,
            "validate_on": "test",
            "train_sample": 6,
            "device": "cpu",
            "threads": 7,
            "precision": "bf16",
            "compile": True,
            "channels_last": False,
            "checkpoint_every": "5m",
            "tensorboard": True,
        }
        names = {name for name, _ in blocks()}
        assert set(values) == {
            name
            for name, field in RunConfig.model_fields.items()
            if (field.alias or name) not in names
        }
        flags = []
        for key, value in values.items():
            flag = key.replace("_", "-")
            if isinstance(value, bool):
                flags.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                flags += [f"--{flag}", *(value if isinstance(value, list) else [value])]
        _, out, _ = annealtune("config", *flags)
        found = tomllib.loads(out)
        del found["adamw"]
        assert found == values


class TestUsageErrors:
    def test_a_typo_in_a_flag_suggests_the_right_one(self, annealtune):
        code, out, err = annealtune("train", "--epocs", 3)
        assert (code, out) == (2, "")
        assert "--epochs" in err

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--model", "vgg17"], "model = 'vgg17': unknown; did you mean 'vgg1"),
            (["--data", "cifar"], "data = 'cifar': unknown; did you mean 'cifar10'?"),
            (["--method", "sgdsa"], "method: input should be 'self-tuned'"),
            (["--epochs", "0"], "epochs: input should be greater than or equal to 1, got 0"),
            (["--validation-fraction", "1.5"], "validation_fraction: "),
            (["--set", "sgd-sa.lr=[-0.1]"], "sgd-sa.lr.0: input should be greater than"),
            (["--set", "sgd-sa.temprature=1"], "did you mean 'temperature'?"),
            (["--set", "epochs"], "must be KEY=VALUE"),
            (["missing.toml"], "missing.toml: cannot be read: No such file"),
            (["--device", "gpu"], "device: must be auto, cpu, cuda, cuda:N or mps, got 'gpu'"),
            (["--checkpoint-every", "never"], "checkpoint_every: must be epoch, a number of steps"),
        ],
    )
    def test_name_the_key_and_the_rule(self, refused, tmp_path, arguments, words):
        assert words in refused("train", *arguments)
        assert list(tmp_path.iterdir()) == []

    def test_in_a_file_name_the_file(self, refused, tmp_path):
        (tmp_path / "a.toml").write_text("epoch = 3")
        expected = "a.toml: epoch: is no key; did you mean 'epochs'?\n"
        assert refused("config", "a.toml") == expected

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--train-size", "5000"], "train_size = 5000: must be in 1..1437"),
            (["--validation-fraction", "0.0001"], "validation_fraction = 0.0001: "),
            (["--image-size", "8", "8"], "only image-folder is resized"),
            (["--model", "no_such_module:net"], "importing no_such_module failed"),
            (["--data", "json:lods"], "json has no 'lods'; did you mean 'loads'?"),
        ],
    )
    def test_found_once_the_data_is_there(self, refused, tmp_path, arguments, words):
        assert words in refused("train", *TINY, *arguments, "--out", "run")
        assert not (tmp_path / "run" / "config.toml").exists()

    def test_missing_data_says_what_to_run(self, refused):
        text = refused("train", "--data", "cifar10", "--data-dir", "nowhere", code=1)
        assert "--download" in text

    def test_a_traceback_on_request(self, annealtune, monkeypatch):
        from annealtune.errors import ConfigError

        monkeypatch.setattr(sys, "argv", ["annealtune", "train", "--epochs", "0", "--debug"])
        with pytest.raises(ConfigError):
            cli.main()


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
        train_images=pictures[:40], train_labels=labels[:40],
        test_images=pictures[40:], test_labels=labels[40:],
    )

def net(*, channels, image_size, classes):
    height, width = image_size
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, classes))

def too_narrow(*, channels, image_size, classes):
    return net(channels=channels, image_size=image_size, classes=classes - 1)

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
    def module(self, tmp_path, monkeypatch):
        (tmp_path / "mine.py").write_text(FACTORIES)
        yield
        sys.modules.pop("mine", None)

    def test_from_the_working_directory(self, annealtune, tmp_path):
        flags = ["--data", "mine:images", "--model", "mine:net", "--epochs", 1, "--batch-size", 10]
        code, out, err = annealtune("train", *flags)
        assert code == 0, err
        assert "weights: runs/mine.images-mine.net-self-tuned-seed0/best.safetensors" in out
        assert annealtune("evaluate", "runs/mine.images-mine.net-self-tuned-seed0")[0] == 0

    def test_from_the_installed_program_too(self, tmp_path):
        """Whose first place to look for modules is not the working directory."""
        script = tmp_path / "elsewhere" / "program.py"
        script.parent.mkdir()
        script.write_text("from annealtune.cli import main\nmain()\n")
        command = [sys.executable, script, "train", "--data", "mine:images", "--epochs", "0"]
        done = run_cold(command, tmp_path)
        assert done.returncode == 2
        command[-1] = "1"
        done = run_cold([*command, "--model", "mine:net"], tmp_path)
        assert done.returncode == 0, done.stderr

    def test_a_model_whose_output_does_not_fit(self, refused):
        text = refused("train", *TINY, "--model", "mine:too_narrow")
        assert "two images must give scores of shape (2, 10), one per class, got (2, 9)" in text

    def test_a_last_minibatch_of_one_image(self, refused, annealtune):
        flags = ["--model", "mine:one_image_is_too_few", "--validate-on", "test", "--epochs", 1]
        text = refused("train", *flags, "--train-size", 41, "--batch-size", 20, "--out", "run")
        assert "batch_size = 20: the last minibatch of 41 images has one image" in text
        code, _, err = annealtune("train", *flags, "--train-size", 42, "--batch-size", 20)
        assert code == 0, err

    @pytest.mark.parametrize("method", ["sgd-sa", "ssa", "adamw"])
    def test_weights_that_are_shared(self, annealtune, method):
        flags = ["--model", "mine:tied", "--method", method, "--out", "run"]
        assert annealtune("train", *TINY, *flags, "--epochs", 2, "--stop-after", 1)[0] == 0
        code, out, err = annealtune("train", "--out", "run", "--resume")
        assert code == 0, err
        model = load("run")
        assert model[3].weight is model[1].weight
        accuracy = re.search(r"test accuracy \S+%", out)[0]
        assert accuracy in annealtune("evaluate", "run")[1]

    def test_a_model_without_weights(self, refused):
        text = refused("train", *TINY, "--model", "mine:without_weights")
        assert text.startswith("method = 'self-tuned': ")
        assert "empty parameter list" in text

    def test_a_factory_that_fails(self, refused):
        assert "KeyError: 'oh'" in refused("train", *TINY, "--model", "mine:broken")
        assert "KeyError: 'oh'" in refused("train", *TINY, "--data", "mine:broken", code=1)


def test_divergence_ends_with_a_clear_line(annealtune):
    flags = ["--method", "sgd", "--set", "sgd.lr=1e6", "--epochs", 30, "--model", "mlp"]
    code, out, err = annealtune("train", *flags, "--train-size", 200)
    assert (code, out) == (1, "")
    last = err.splitlines()[-1]
    assert last.startswith("annealtune: method = 'sgd': the training loss must be finite, got ")
    assert "try a smaller rate" in last
    assert "Traceback" not in err


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
    accuracy, weights = out.splitlines()
    assert re.fullmatch(
        r"test accuracy \d+\.\d\d%, test loss \d+\.\d{4}, best epoch 1 of 1", accuracy
    )
    assert weights == "weights: some/where/run/best.safetensors"
    assert (tmp_path / "some" / "where" / "run" / "best.safetensors").exists()


def test_the_papers_protocol_is_said_to_be_optimistic(annealtune):
    _, out, _ = annealtune("train", *TINY, "--validate-on", "test")
    assert out.splitlines()[0].startswith("the test set chose the best epoch")


# --- From nothing ---


def run_cold(command, directory):
    import os

    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


HEAVY = ("torch", "numpy", "scipy", "sklearn", "safetensors", "matplotlib", "ray")

# Ends as the program does and names, as its last line, what was imported on the way.
LIGHT = f"""
import atexit, sys
from annealtune.cli import main
atexit.register(lambda: print(*sorted({HEAVY!r} & sys.modules.keys()), file=sys.stderr))
main()
""".replace(repr(HEAVY), repr(set(HEAVY)))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["train", "--help"], 0),
        (["config"], 0),
        (["train", "--epocs", "3"], 2),
        (["train", "--epochs", "0"], 2),
        (["train", "--model", "vgg17"], 2),
        (["train", "missing.toml"], 2),
        (["inspect", "missing"], 2),
        (["evaluate", "missing"], 2),
        (["unknown"], 2),
    ],
)
def test_help_and_usage_errors_import_nothing_heavy(tmp_path, arguments, code):
    done = run_cold([sys.executable, "-W", "error", "-c", LIGHT, *arguments], tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stderr.splitlines()[-1].strip() == ""
    assert list(tmp_path.iterdir()) == []


def test_python_m_annealtune(tmp_path):
    done = run_cold([sys.executable, "-m", "annealtune", "train", *TINY, "--out", "run"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "weights: run/best.safetensors"


def test_without_what_it_needs_it_says_what_to_install(annealtune, monkeypatch):
    real = cli.importlib.util.find_spec
    monkeypatch.setattr(
        cli.importlib.util, "find_spec", lambda name: None if name == "typer" else real(name)
    )
    code, _, err = annealtune("--help")
    assert code == 2
    assert err == "annealtune: typer missing: pip install 'annealtune[train]'\n"
