"""From text and plain data to a config, or to an error that names key, rule and value."""

import math

import pytest

from annealtune.errors import ConfigError
from annealtune.training.config import assign, from_values, read_toml


def refusal(values) -> str:
    with pytest.raises(ConfigError) as refused:
        from_values(values)
    return str(refused.value)


class TestRefusals:
    @pytest.mark.parametrize(
        ("values", "answer"),
        [
            ({"epoch": 3}, "config: epoch: unknown key; did you mean 'epochs'?"),
            ({"batchsize": 3}, "config: batchsize: unknown key; did you mean 'batch_size'?"),
            ({"sgdsa": {}}, "config: sgdsa: unknown key; did you mean 'sgd-sa'?"),
            (
                {"sgd-sa": {"temperatur": 1.0}},
                "config: sgd-sa.temperatur: unknown key; did you mean 'temperature'?",
            ),
            (
                {"sgd_sa": {"temperatur": 1.0}},
                "config: sgd_sa.temperatur: unknown key; did you mean 'temperature'?",
            ),
            (
                {"adamw": {"xyz": 1}},
                "config: adamw.xyz: unknown key; known keys: lr, weight_decay, schedule",
            ),
        ],
    )
    def test_a_typo_in_a_key(self, values, answer):
        assert refusal(values) == answer

    @pytest.mark.parametrize(
        ("values", "key", "received"),
        [
            ({"epochs": 0}, "epochs", "0"),
            ({"seed": -1}, "seed", "-1"),
            ({"reshuffle": "no"}, "reshuffle", "'no'"),
            ({"validation_fraction": math.nan}, "validation_fraction", "nan"),
            ({"validate_on": "train"}, "validate_on", "'train'"),
            ({"method": "sgdsa"}, "method", "'sgdsa'"),
            ({"device": "gpu"}, "device", "'gpu'"),
            ({"checkpoint_every": "0"}, "checkpoint_every", "'0'"),
            ({"image_size": [8, 0]}, "image_size.1", "0"),
            ({"sgd": 3}, "sgd", "3"),
            ({"sgd": {"lr": "0.1"}}, "sgd.lr", "'0.1'"),
            ({"sgd-sa": {"lr": [0.1, -0.1]}}, "sgd-sa.lr.1", "-0.1"),
            ({"sgd-sa": {"temperature": math.nan}}, "sgd-sa.temperature", "nan"),
            ({"sgd-sa": {"preset": "paper"}}, "sgd-sa.preset", "'paper'"),
            ({"ssa": {"radius": 0.0}}, "ssa.radius", "0.0"),
            ({"scheduled-sgd": {"milestones": [1.5]}}, "scheduled-sgd.milestones.0", "1.5"),
        ],
    )
    def test_a_wrong_value_is_named_with_its_key(self, values, key, received):
        text = refusal(values)
        assert text.startswith(f"config: {key}: ")
        assert f"got {received}" in text
        assert "\n" not in text
        assert len(text) < 250

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"data": "digit"}, "data = 'digit': unknown; did you mean 'digits'?"),
            ({"model": "vg16-w8"}, "model = 'vg16-w8': unknown; did you mean 'vgg16-w8'?"),
            ({"model": "mlp-w1000"}, "use -w1 to -w128"),
            ({"data": "../secret:x"}, "must have the form package.module:factory"),
        ],
    )
    def test_an_unknown_name(self, values, words):
        assert words in refusal(values)

    def test_every_fault_is_named(self):
        text = refusal({"epochs": 0, "modell": "mlp", "sgd": {"lr": -1.0}})
        assert len(text.splitlines()) == 3
        for key in ("epochs", "modell", "sgd.lr"):
            assert key in text


class TestFiles:
    def test_a_file_that_is_not_there(self, place):
        with pytest.raises(ConfigError, match=r"missing\.toml"):
            read_toml(place / "missing.toml")

    @pytest.mark.parametrize(
        "content",
        [b"epochs = ", b"\xff\xfe", b"n = " + b"9" * 5000],
    )
    def test_a_file_that_is_no_toml(self, place, content):
        (place / "bad.toml").write_bytes(content)
        with pytest.raises(ConfigError, match=r"bad\.toml: is not valid TOML"):
            read_toml(place / "bad.toml")


class TestAssignments:
    @pytest.mark.parametrize(
        ("assignment", "expected"),
        [
            ("epochs=3", {"epochs": 3}),
            ("sgd.lr=0.5", {"sgd": {"lr": 0.5}}),
            ("sgd-sa.lr=[0.1, 0.2]", {"sgd-sa": {"lr": [0.1, 0.2]}}),
            ("sgd-sa.preset=paper-text", {"sgd-sa": {"preset": "paper-text"}}),
            ("sgd-sa.temperature=inf", {"sgd-sa": {"temperature": math.inf}}),
            ("data=my.package:data", {"data": "my.package:data"}),
            ("seed=" + "9" * 5000, {"seed": "9" * 5000}),
        ],
    )
    def test_are_read_as_toml_or_text(self, assignment, expected):
        values = {}
        assign(values, assignment)
        assert values == expected

    def test_keep_what_is_beside(self):
        values = {"sgd": {"lr": 0.1}, "epochs": 3}
        assign(values, "sgd.other=1")
        assert values == {"sgd": {"lr": 0.1, "other": 1}, "epochs": 3}

    @pytest.mark.parametrize("assignment", ["", "=3", "epochs"])
    def test_that_are_none(self, assignment):
        with pytest.raises(ConfigError, match="must be KEY=VALUE"):
            assign({}, assignment)

    def test_into_what_is_no_table(self):
        with pytest.raises(ConfigError, match="'epochs' is not a table"):
            assign({"epochs": 3}, "epochs.lr=1")
