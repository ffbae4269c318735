"""Pickles, TOML and JSON that were made to harm: refused, nothing executed."""

import hashlib
import io
import json
import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from annealtune.errors import AnnealtuneError, ConfigError, RunError
from annealtune.training import load, run
from annealtune.training.config import assign, from_values, read_toml
from annealtune.training.data import image_folder
from annealtune.training.data import load as load_data
from annealtune.training.describe import describe_run
from annealtune.training.input_files import read_inputs
from annealtune.training.plain_data import parse_json, parse_toml
from annealtune.training.stopping import StopRequest
from annealtune.training.storage.directory import RunDirectory
from annealtune.training.storage.seal import sealed_text, unsealed

# --- Nothing is executed ---
from .seeds import NUMBERS, picture_folder


class Creates:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.fixture
def canary(tmp_path):
    """The file that code in a pickle would make, and that pickle."""
    path = tmp_path / "canary"
    poison = pickle.dumps(Creates(path))
    pickle.loads(poison)
    assert path.exists()  # else the tests below could not fail
    path.unlink()
    return path, poison


def as_array(poison, _, folder):
    target = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        target, {"descr": "|O", "fortran_order": False, "shape": (1,)}
    )
    (folder / "x.npy").write_bytes(target.getvalue() + poison)
    list(read_inputs(folder / "x.npy", NUMBERS, 2))


def as_checkpoint(poison, run_dir, _):
    """With the right digest: whoever can write the one can write the other."""
    [manifest, *_] = sorted((run_dir / "checkpoints").glob("*.json"), reverse=True)
    digest = hashlib.sha256(poison).hexdigest()
    facts = json.loads(manifest.read_text()) | {"bytes": len(poison), "sha256": digest}
    facts["file"] = f"{manifest.stem}-{digest[:12]}.pt"
    (run_dir / "checkpoints" / facts["file"]).write_bytes(poison)
    for other in (run_dir / "checkpoints").glob("*.json"):
        other.unlink()
    manifest.write_text(json.dumps(facts))
    run(RunDirectory(run_dir).config(), run_dir, stop=StopRequest(after_epoch=1))


def as_weights(poison, run_dir, _):
    facts = json.loads((run_dir / "best.json").read_text())
    (run_dir / "best.safetensors").write_bytes(poison)
    facts["sha256"] = hashlib.sha256(poison).hexdigest()
    (run_dir / "best.json").write_text(json.dumps(facts))
    load(run_dir)


def as_record(poison, run_dir, _):
    (run_dir / "metrics.jsonl").write_bytes(poison + b"\n")
    describe_run(run_dir)


def as_config(poison, run_dir, _):
    (run_dir / "config.toml").write_bytes(poison)
    describe_run(run_dir)


def as_cifar(poison, _, folder):
    (folder / "cifar-10-batches-py").mkdir()
    (folder / "cifar-10-batches-py" / "data_batch_1").write_bytes(poison)
    load_data("cifar10", data_dir=folder)


def as_picture(poison, _, folder):
    picture_folder(folder, poison)
    image_folder.load(folder)


READERS = [as_array, as_checkpoint, as_weights, as_record, as_config, as_cifar, as_picture]


@pytest.mark.parametrize("form", ["pickle", "torch"])
@pytest.mark.parametrize("read", READERS)
def test_a_pickle_is_never_unpickled(read, form, canary, unfinished, tmp_path):
    path, poison = canary
    if form == "torch":
        target = io.BytesIO()
        torch.save({"format": 1, "model": Creates(path)}, target)
        poison = target.getvalue()
    folder = tmp_path / "data"
    folder.mkdir()
    with pytest.raises(AnnealtuneError):
        read(poison, unfinished, folder)
    assert not path.exists()


def test_a_factory_is_code_by_intent(tmp_path, monkeypatch):
    """What ``package.module:factory`` names is run: that is what it is for, and documented."""
    (tmp_path / "chosen_code.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = from_values({"data": "chosen_code:factory"})  # checked, not imported
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ConfigError, match="has no 'factory'"):
        load_data(config.data)
    assert (tmp_path / "ran").exists()
    security = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
    assert "package.module:factory" in security


# --- TOML and JSON ---

TOMLS = {
    "deep lists": "x = " + "[" * 100_000,
    "deep lists that end": "x = " + "[" * 300 + "]" * 300,
    "deep tables": "x = " + "{a = " * 50_000,
    "a long key": ".".join("a" * 300_000) + " = 1",
    "a long key in a table": "x = { " + ".".join("a" * 300_000) + " = 1 }",
    "a long header": "[" + ".".join("a" * 300_000) + "]",
    "a long number": "epochs = " + "9" * 5000,
    "a number of 65 bits": f"epochs = {2**64}",
    "many tables": "".join(f"[t{number}]\n" for number in range(100_000)),
    "many keys": "".join(f"k{number} = 1\n" for number in range(100_000)),
    "a megabyte": f'x = "{"y" * 5_000_000}"',
    "a long word": f'method = "{"y" * 1_000_000}"',
    "a NUL": 'data = "a\\u0000b"',
    "no text": "\udcff\udcfe",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", TOMLS)
def test_toml_bombs(tmp_path, name):
    path = tmp_path / "x.toml"
    path.write_bytes(TOMLS[name].encode(errors="surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        from_values(read_toml(path), str(path))
    assert len(str(caught.value)) < 11_000


def test_of_many_faults_ten_are_told_and_the_others_counted():
    with pytest.raises(ConfigError, match=r"\.\.\. and 15 more$") as caught:
        from_values({f"k{number}": 1 for number in range(25)})
    assert str(caught.value).count("unknown key") == 10


@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 5000, "1e999"])
def test_an_assignment_that_is_a_bomb(value):
    values = {}
    assign(values, f"sgd.lr={value}")
    with pytest.raises(ConfigError):
        from_values({**values, "method": "sgd"})


JSONS = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"[" * 40 + b"]" * 40,
    b"9" * 5000,
    b"%d" % 2**64,
    b"1e999",
    b"NaN",
    b'"\\ud800"',
    b'"a\\u0000b"',
    b"\xff",
    b"",
]


@pytest.mark.parametrize("content", JSONS)
def test_json_bombs_are_value_errors(content):
    with pytest.raises(ValueError, match=r".+"):
        parse_json(content)


@pytest.mark.parametrize("content", [*JSONS, b"{}", b"[]"])
@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("result.json", describe_run),
        ("metrics.jsonl", describe_run),
        ("moves.jsonl", describe_run),
        ("best.json", load),
        ("task.json", load),
    ],
)
def test_records_that_are_bombs(finished, content, file, read):
    (finished / file).write_bytes(content + b"\n")
    with pytest.raises(RunError, match=file.replace(".", r"\.")):
        read(finished)


@pytest.mark.parametrize("content", JSONS)
def test_manifests_that_are_bombs(unfinished, content):
    for manifest in (unfinished / "checkpoints").glob("*.json"):
        manifest.write_bytes(content)
    with pytest.raises(RunError, match="no checkpoint can be used"):
        RunDirectory(unfinished).checkpoints.load(lambda _: None)


@pytest.mark.parametrize("file", ["../../secret", "/etc/hostname", "a\x1bb"])
def test_a_manifest_that_names_another_file(unfinished, file):
    for manifest in (unfinished / "checkpoints").glob("*.json"):
        facts = unsealed(manifest.read_bytes(), manifest.name)
        manifest.write_bytes(sealed_text({**facts, "file": file}))
    with pytest.raises(RunError, match=r"outside of the checkpoints|is missing"):
        RunDirectory(unfinished).load(lambda _: None)


FORGED = {
    "epoch: must be an integer, got '1'": {"epoch": "1"},
    "config: must be a string, got None": {"config": None},
    "files: must be a table, got 3": {"files": 3},
    "must seal metrics.jsonl, moves.jsonl, task.json too": {"files": {}},
    "must match ^[a-z]+": {"files": {"../../secret.json": [0, ""]}},
    "files.task.json: must be a list, got 'x'": {"files": {"task.json": "x"}},
    "best.epoch: must be there": {"best": {}},
    "more: must not be there, got 1": {"more": 1},
}


@pytest.mark.parametrize("rule", FORGED)
def test_a_seal_with_the_right_digest_that_is_none(finished, unfinished, rule):
    path = finished / "seal.json"
    path.write_bytes(sealed_text({**unsealed(path.read_bytes(), path.name), **FORGED[rule]}))
    with pytest.raises(RunError, match=f"seal.json is damaged: .*{re.escape(rule)}"):
        describe_run(finished)
    for manifest in (unfinished / "checkpoints").glob("*.json"):
        facts = {**unsealed(manifest.read_bytes(), manifest.name), **FORGED[rule]}
        manifest.write_bytes(sealed_text(facts))
    for read in (describe_run, lambda path: RunDirectory(path).load(lambda _: None)):
        with pytest.raises(RunError, match=f"step-.* is damaged: .*{re.escape(rule)}"):
            read(unfinished)


def test_a_manifest_whose_config_is_none(unfinished):
    for manifest in (unfinished / "checkpoints").glob("*.json"):
        facts = unsealed(manifest.read_bytes(), manifest.name)
        manifest.write_bytes(sealed_text({**facts, "config": "[["}))
    for read in (describe_run, lambda path: RunDirectory(path).load(lambda _: None)):
        with pytest.raises(RunError, match="the config in the seal is damaged: it is not TOML"):
            read(unfinished)


def test_a_race_with_a_loss_that_is_none(finished, unseal):
    """An arm's losses end where one is not finite: no run writes null among them."""
    unseal(finished)
    race = {"step": 1, "minibatches": 1, "settings": [{"lr": 0.1}], "scores": [1.0], "winner": 0}
    race |= {"dropped": {}, "reason": "", "rate": 0.1, "extra_steps": 0, "restarted": False}
    record = {"epoch": 1, "validation_loss": 1.0, "races": [{**race, "losses": [[1.0, None]]}]}
    (finished / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(RunError, match=r"races\.0\.losses\.0\.1: must be a number, got None"):
        describe_run(finished)


def an_option_of_text(state):
    state["method"]["optimizer"]["param_groups"][0]["weight_decay"] = "x"


def an_epoch_without_end(state):
    state["counts"][0] = -(2**40)


def a_list_for_a_number(state):
    state["counts"][0] = [1]


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (an_option_of_text, "went on from its checkpoint of step 9 and failed before the next"),
        (an_epoch_without_end, "does not fit .* it is of step 9, epoch -1099511627776"),
        (a_list_for_a_number, "does not fit .* 'list' object cannot be interpreted"),
    ],
)
def test_a_state_with_the_right_digest_that_no_run_saved(unfinished, forge, words):
    checkpoints = unfinished / "checkpoints"
    manifest = max(checkpoints.glob("*.json"))
    facts = unsealed(manifest.read_bytes(), manifest.name)
    state = torch.load(checkpoints / facts["file"], weights_only=True)
    forge(state)
    target = io.BytesIO()
    torch.save(state, target)
    digest = hashlib.sha256(target.getvalue()).hexdigest()
    facts |= {"bytes": len(target.getvalue()), "sha256": digest}
    facts["file"] = f"{manifest.stem}-{digest[:12]}.pt"
    (checkpoints / facts["file"]).write_bytes(target.getvalue())
    manifest.write_bytes(sealed_text(facts))
    with pytest.raises(RunError, match=words):
        run(RunDirectory(unfinished).config(), unfinished)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("file", ["metrics.jsonl", "result.json", "task.json"])
def test_a_pipe_in_place_of_a_record_is_not_waited_for(finished, file):
    (finished / file).unlink()
    os.mkfifo(finished / file)
    with pytest.raises(RunError, match="is not a file"):
        describe_run(finished) if file != "task.json" else load(finished)


def test_what_is_plain_passes():
    text = "a = [1, 2.5, inf]\n[b.c]\nd = 'x'\nf = 9223372036854775807\n"
    assert parse_toml(text)["b"]["c"]["f"] == 2**63 - 1
    assert parse_json(b'{"a": [1, null, "\\u00e9"]}') == {"a": [1, None, "é"]}
