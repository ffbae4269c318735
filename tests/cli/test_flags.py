"""A flag for every key, explained in the help, joined with a file and --set."""

import tomllib

import pytest

from annealtune.training.config import RunConfig, from_values, is_block

KEYS = {name: field for name, field in RunConfig.model_fields.items() if not is_block(field)}


@pytest.mark.parametrize("command", ["train", "config", "study"])
def test_the_help_explains_every_key(annealtune, command):
    code, out, _ = annealtune(command, "--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for name in KEYS:
        assert f"--{name.replace('_', '-')} " in out


def test_config_prints_what_it_reads(annealtune, tmp_path):
    (tmp_path / "a.toml").write_text(
        'method = "ssa"\nepochs = 7\nseed = 3\n[ssa]\nradius = 0.5\n[sgd]\nlr = 0.3\n'
    )
    code, first, _ = annealtune("config", "a.toml")
    assert code == 0
    expected = from_values({"method": "ssa", "epochs": 7, "seed": 3, "ssa": {"radius": 0.5}})
    assert from_values(tomllib.loads(first)).to_dict() == expected.to_dict()
    (tmp_path / "b.toml").write_text(first)
    assert annealtune("config", "b.toml") == (0, first, "")


def test_flags_win_over_assignments_and_assignments_over_the_file(annealtune, tmp_path):
    (tmp_path / "a.toml").write_text(
        "method = 'sgd-sa'\nepochs = 7\nseed = 3\nbatch_size = 10\n[sgd-sa]\nlr = [1.0]"
    )
    flags = ["--epochs", 9, "--set", "epochs=8", "--set", "seed=4", "--set", "sgd-sa.lr=[2.0]"]
    _, out, _ = annealtune("config", "a.toml", *flags)
    found = tomllib.loads(out)
    assert (found["epochs"], found["seed"], found["batch_size"]) == (9, 4, 10)
    assert found["sgd-sa"]["lr"] == [2.0]


def test_every_flag_reaches_its_key(annealtune):
    values = {
        "data": "image-folder",
        "data_dir": "some/where",
        "download": True,
        "image_size": [16, 24],
        "train_size": 100,
        "model": "resnet34-w4",
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
        "device": "cpu",
        "threads": 7,
        "precision": "bf16",
        "checkpoint_every": "5m",
    }
    values = {key: value for key, value in values.items() if key in KEYS}
    assert set(values) == set(KEYS)
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "vg16"], "model = 'vg16': unknown; did you mean 'vgg16'?"),
        (["--method", "sgdsa"], "got 'sgdsa'; did you mean 'sgd-sa'?"),
        (["--device", "gpu"], "device: "),
        (["--checkpoint-every", "never"], "checkpoint_every: "),
        (["--set", "epoch=3"], "epoch: unknown key; did you mean 'epochs'?"),
        (["--set", "epochs"], "must be KEY=VALUE"),
        (["--set", "sgd-sa.lr=[0.1]"], "add --method sgd-sa"),
        (["missing.toml"], "missing.toml: "),
        (["wrong.toml"], "wrong.toml: epoch: unknown key; did you mean 'epochs'?"),
    ],
)
def test_errors_name_the_key_and_what_was_meant(refused, tmp_path, arguments, words):
    (tmp_path / "wrong.toml").write_text("epoch = 3")
    assert words in refused("train", *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.toml"]
