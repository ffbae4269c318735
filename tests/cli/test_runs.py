"""Train, evaluate and inspect: what they print, what they refuse, and models of the user's own."""

import json
import re
import sys

import pytest

from annealtune.training import load

TINY = ("--model", "mlp-w16", "--train-size", "100", "--epochs", "1", "--threads", "1")


class TestUsageErrors:
    def test_a_typo_in_a_flag_suggests_the_right_one(self, annealtune):
        code, out, err = annealtune("train", "--epocs", 3)
        assert (code, out) == (2, "")
        assert err == (
            "annealtune: no such option: --epocs; did you mean '--epochs'?\n"
            "annealtune train --help explains the options\n"
        )

    @pytest.mark.parametrize(
        ("arguments", "meant"),
        [
            (["--around", "0.1"], "--set self-tuned.around=0.1"),
            (["--method", "sgd-sa", "--lr", "[1, 2]"], "--set 'sgd-sa.lr=[1, 2]'"),
            (["--around=0.1"], "--set self-tuned.around=0.1"),
            (["--around"], "--set self-tuned.around=VALUE"),
            (["--method", "sgd", "--lr", "0.1"], "--set sgd.lr=0.1"),
            (["sgd.toml", "--lr", "0.1"], "--set sgd.lr=0.1"),
            (["sgd.toml", "--method=adamw", "--weight-decay", "0"], "--set adamw.weight_decay=0"),
        ],
    )
    def test_an_option_of_the_method_is_no_flag(self, refused, tmp_path, arguments, meant):
        (tmp_path / "sgd.toml").write_text("method = 'sgd'")
        assert f"; did you mean {meant}?\n" in refused("train", *arguments)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--model", "vg16"], "model = 'vg16': unknown; did you mean 'vgg16'?"),
            (["--model", "vgg17"], "model = 'vgg17': unknown; known: mlp, small-cnn, resnet18"),
            (["--data", "cifar"], "data = 'cifar': unknown; did you mean 'cifar10'?"),
            (["--data", "cifar100"], "data = 'cifar100': unknown; known: digits, fashion-mnist"),
            (["--method", "sgdsa"], "method: must be one of self-tuned, sgd-sa, adamw-sa, ssa"),
            (["--method", "sgdsa"], "got 'sgdsa'; did you mean 'sgd-sa'?"),
            (["--method", "sgd-sa", "--strategy", "tabuu"], "did you mean 'tabu'?"),
            (["--strategy", "tabu"], "method = 'self-tuned' has no key strategy; sgd-sa, adamw-sa"),
            (["--precision", "fp8"], "precision: must be one of fp32, bf16, fp16, got 'fp8'"),
            (["--validate-on", "tests"], "got 'tests'; did you mean 'test'?"),
            (["--set", "self-tuned.optimizer=adanw"], "got 'adanw'; did you mean 'adamw'?"),
            (["--set", "around=0.1"], "around: unknown key; did you mean 'self-tuned.around'?"),
            (["--set", "sgdsa.lr=1"], "sgdsa: unknown key; did you mean 'sgd-sa'?"),
            (["adamw"], "adamw: there is no such file; did you mean --method adamw?"),
            (["cifar10"], "cifar10: there is no such file; did you mean --data cifar10?"),
            (["--epochs", "three"], "--epochs 'three': input should be a valid integer"),
            (["--epochs", "0"], "epochs: input should be greater than or equal to 1, got 0"),
            (["--validation-fraction", "1.5"], "validation_fraction: "),
            (["--set", "sgd-sa.lr=[-0.1]"], "sgd-sa.lr.0: input should be greater than"),
            (["--set", "sgd-sa.temprature=1"], "did you mean 'temperature'?"),
            (["--set", "epochs"], "must be KEY=VALUE"),
            (
                ["--set", "sgd-sa.lr=[0.1]"],
                "sgd-sa.lr: is an option of sgd-sa, but the method is self",
            ),
            (["--set", "sgd_sa.lr=[0.1]"], "add --method sgd-sa, or leave it out"),
            (["missing.toml"], "missing.toml: cannot be read: No such file"),
            (
                ["--device", "gpu"],
                "device: must be auto, cpu, cuda, cuda:N or mps, got 'gpu'; did you mean 'cuda'?",
            ),
            (["--device", "cua"], "got 'cua'; did you mean 'cuda'?"),
            (["--device", "tpux"], "cuda:N or mps, got 'tpux'\n"),
            (["--checkpoint-every", "never"], "checkpoint_every: must be epoch, a number of steps"),
        ],
    )
    def test_name_the_key_and_the_rule(self, refused, tmp_path, arguments, words):
        assert words in refused("train", *arguments)
        assert list(tmp_path.iterdir()) == []

    def test_in_a_file_name_the_file(self, refused, tmp_path):
        (tmp_path / "a.toml").write_text("epoch = 3")
        expected = "a.toml: epoch: unknown key; did you mean 'epochs'?\n"
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

    def test_from_the_installed_program_too(self, run_cold, tmp_path):
        """Whose first place to look for modules is not the working directory.

        Nor does it import anything of studies on the way.
        """
        script = tmp_path / "elsewhere" / "program.py"
        script.parent.mkdir()
        script.write_text("from annealtune.cli import main\nmain()\n")
        command = [sys.executable, "-X", "importtime", script, "train", "--out", "run"]
        command += ["--data", "mine:images", "--model", "mine:net", "--epochs"]
        assert run_cold(*command, "0").returncode == 2
        done = run_cold(*command, "1")
        assert done.returncode == 0, done.stderr
        assert "weights: run/best.safetensors" in done.stdout.splitlines()
        assert "annealtune.training" in done.stderr
        assert "annealtune.studies" not in done.stderr

    def test_a_model_whose_output_does_not_fit(self, refused):
        text = refused("train", *TINY, "--model", "mine:too_narrow")
        assert "two images must give scores of shape (2, 10), one per class, got (2, 9)" in text

    def test_a_last_minibatch_of_one_image(self, refused, annealtune):
        flags = ["--model", "mine:one_image_is_too_few", "--validate-on", "test", "--epochs", 1]
        text = refused("train", *flags, "--train-size", 41, "--batch-size", 20, "--out", "run")
        assert "batch_size = 20: the last minibatch of 41 samples has one sample" in text
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
    accuracy, weights, page = out.splitlines()
    assert re.fullmatch(
        r"test accuracy \d+\.\d\d%, test loss \d+\.\d{4}, best epoch 1 of 1", accuracy
    )
    assert weights == "weights: some/where/run/best.safetensors"
    assert page == "see it: annealtune report some/where/run --open"
    assert (tmp_path / "some" / "where" / "run" / "best.safetensors").exists()


def test_the_papers_protocol_is_said_to_be_optimistic(annealtune):
    _, out, _ = annealtune("train", *TINY, "--validate-on", "test")
    assert out.splitlines()[0].startswith("the test set chose the best epoch")


class TestResume:
    def test_without_a_run_it_says_what_to_do(self, refused, tmp_path):
        text = refused("train", "--resume")
        assert text.startswith(
            "--resume: there is no run in runs/digits-small-cnn-self-tuned-seed0;"
        )
        assert "annealtune list shows the runs" in text
        assert list(tmp_path.iterdir()) == []

    def test_it_knows_the_runs_beside_it(self, refused, tmp_path):
        (tmp_path / "runs" / "first").mkdir(parents=True)
        (tmp_path / "runs" / "first" / "config.toml").touch()
        text = refused("train", "--resume", "--out", "runs/frist")
        assert "did you mean 'runs/first'? annealtune list" in text
        assert refused("inspect", "runs/frist") == (
            "runs/frist: is not a run directory: it has no config.toml; did you mean "
            "'runs/first'?\n"
        )

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
