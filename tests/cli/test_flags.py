"""A flag for every key, explained in the help, joined with a file and --set."""

import re
import tomllib
from typing import get_args

import pytest

from annealtune.annealing import STRATEGIES
from annealtune.training.config import MethodName, Options, RunConfig, from_values


def blocks():
    for name, field in RunConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Options):
            yield field.alias or name, field.annotation


def sections(out):
    """The help in parts: each heading and the words below it, in one line."""
    explained = out.partition("--help --method NAME")[0]  # the line at the end is not a row
    parts = re.split(r"^(\S.*):$", explained, flags=re.MULTILINE)
    return {
        title: " ".join(text.split()) for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


class TestHelp:
    @pytest.mark.parametrize("command", ["train", "config", "study"])
    def test_explains_every_key_in_a_group(self, annealtune, command):
        code, out, _ = annealtune(command, "--help")
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
        found = sections(out)
        names = {name for name, _ in blocks()}
        for name, field in RunConfig.model_fields.items():
            if (field.alias or name) in names:
                continue
            flag = "--" + name.replace("_", "-")
            (group,) = [title for title, words in found.items() if f"{flag} " in words]
            assert group not in ("Options", "Arguments"), name
            assert field.description in found[group], name
            if field.default is not None:
                assert f"[default: {str(field.default).lower()}]" in found[group], name

    @pytest.mark.parametrize("name", get_args(MethodName))
    def test_explains_the_options_of_the_chosen_method_alone(self, annealtune, name):
        _, out, _ = annealtune("train", "--method", name, "--help")
        assert max(map(len, out.splitlines())) <= 80
        (title,) = [title for title in sections(out) if title.startswith("Options of ")]
        assert title == f"Options of {name}, by --set {name}.KEY=VALUE or in the file"
        rows = out.partition(f"{title}:\n")[2]
        explained = re.findall(r"^  ([a-z_]+)(?= {2,}|$)", rows, flags=re.MULTILINE)
        assert explained == list(dict(blocks())[name].model_fields)

    @pytest.mark.parametrize(
        ("words", "rows"),
        [
            ([], {"optimizer": "(adamw, adam, nadam, radam, rmsprop, sgd) [default: adamw]"}),
            (["--method", "sgd-sa"], {"lr": "learning rates in H [default: 0.9 ... 0.05]"}),
            (
                ["--method=adamw-sa"],
                {"lr": "[default: 0.0001 ... 0.01]", "strategy": "[default: simulated-annealing]"},
            ),
            (["--method", "adamw"], {"lr": "[default: 0.001]", "weight_decay": "[default: 0.01]"}),
            (
                ["--method", "sgd-momentum"],
                {"lr": "[default: 0.1]", "nesterov": "[default: false]"},
            ),
            (["mine.toml"], {"radius": "[default: 0.5]"}),
            (["mine.toml", "--method", "scheduled-sgd"], {"milestones": "[default: 0.3, 0.7]"}),
        ],
    )
    def test_shows_the_values_that_the_config_would_have(self, annealtune, tmp_path, words, rows):
        (tmp_path / "mine.toml").write_text("method = 'ssa'\n[ssa]\nradius = 0.5\n")
        _, out, _ = annealtune("train", *words, "--help")
        options = " ".join(out.partition("\nOptions of ")[2].split())
        for key, text in rows.items():
            assert re.search(rf" {key} [^\[]*{re.escape(text)}", options), key

    def test_says_how_to_see_another_method(self, annealtune):
        _, out, _ = annealtune("train", "--help")
        assert "--help --method NAME shows the options of another method." in out

    def test_of_a_method_that_does_not_exist(self, refused):
        assert "did you mean 'adamw-sa'?" in refused("train", "--method", "adamsa", "--help")

    def test_shows_the_choices_and_breaks_no_name(self, annealtune):
        _, out, _ = annealtune("train", "--help")
        listed = " ".join(out.split())
        assert ", ".join(get_args(MethodName)) in listed
        assert ", ".join(STRATEGIES) in listed
        assert "fp32|bf16|fp16" in out
        assert not re.search(r"[a-z]-$", out, flags=re.MULTILINE)


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
