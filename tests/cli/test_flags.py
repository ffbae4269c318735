"""A flag for every key, explained in the help, joined with a file and --set."""

import re
import tomllib

import pytest

from annealtune.training.config import Options, RunConfig, from_values


def blocks():
    for name, field in RunConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Options):
            yield field.alias or name, field.annotation


class TestHelp:
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
