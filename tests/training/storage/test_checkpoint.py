"""Checkpoints: two are kept, damage is found, nothing in them is run."""

import hashlib
import json
import os
import zipfile

import pytest
import torch

from annealtune.errors import RunError
from annealtune.training.runs import run
from annealtune.training.storage.checkpoint import Checkpoints

NONE = [0, hashlib.sha256().hexdigest()]
SEALED = {
    "epoch": 0,
    "config": "",
    "files": dict.fromkeys(("task.json", "metrics.jsonl", "moves.jsonl"), NONE),
    "best": None,
}


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def checkpoints(place):
    return Checkpoints(place / "checkpoints")


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def files(checkpoints):
    return sorted(path.name for path in checkpoints.directory.iterdir())


class TestKeeping:
    def test_nothing_saved_is_nothing_found(self, checkpoints, warnings):
        assert checkpoints.load(warnings.append) is None
        assert checkpoints.steps() == []
        assert not warnings

    def test_the_newest_of_the_last_two_comes_back(self, checkpoints, warnings):
        for step in (1, 2, 30):
            checkpoints.save(step, {"weights": torch.full((3,), float(step))}, SEALED)
        state = checkpoints.load(warnings.append)
        assert torch.equal(state["weights"], torch.full((3,), 30.0))
        assert checkpoints.steps() == [30, 2]
        assert len(files(checkpoints)) == 4
        assert not warnings

    def test_order_is_by_number_however_long(self, checkpoints, warnings):
        for step in (9_999_999_999, 10_000_000_000):
            checkpoints.save(step, {"step": step}, SEALED)
        assert checkpoints.load(warnings.append)["step"] == 10_000_000_000

    def test_a_step_saved_twice_is_one_checkpoint(self, checkpoints, warnings):
        checkpoints.save(3, {"of": "before"}, SEALED)
        checkpoints.save(5, {"of": "first"}, SEALED)
        checkpoints.save(5, {"of": "second"}, SEALED)
        assert checkpoints.load(warnings.append)["of"] == "second"
        assert checkpoints.steps() == [5, 3]
        assert len(files(checkpoints)) == 4

    @pytest.mark.parametrize("written", [0, 1])
    def test_a_step_saved_twice_keeps_the_first_until_the_second_is_whole(
        self, checkpoints, warnings, monkeypatch, written
    ):
        checkpoints.save(5, {"of": "first"}, SEALED)
        before = files(checkpoints)
        real, calls = os.fsync, []

        def full(descriptor):
            calls.append(descriptor)
            if len(calls) > 2 * written:  # each file is forced to disk, then its directory
                raise OSError(28, "No space left on device")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match="no space left"):
            checkpoints.save(5, {"of": "second"}, SEALED)
        assert files(checkpoints) == before
        assert checkpoints.load(warnings.append)["of"] == "first"

    def test_what_was_passed_over_goes_with_the_next_save(self, checkpoints, warnings):
        for step in (10, 20):
            checkpoints.save(step, {"step": step}, SEALED)
        (damaged,) = checkpoints.directory.glob("*20-*.pt")
        flip(damaged, 100)
        assert checkpoints.load(warnings.append)["step"] == 10
        checkpoints.save(15, {"step": 15}, SEALED)
        assert checkpoints.steps() == [15, 10]
        assert not damaged.exists()

    def test_files_without_a_manifest_go_with_the_next_save(self, checkpoints):
        checkpoints.save(1, {}, SEALED)
        (checkpoints.directory / "step-0000000007-0123456789ab.pt").write_bytes(b"orphan")
        checkpoints.save(2, {}, SEALED)
        assert len(files(checkpoints)) == 4


class TestDamage:
    @pytest.fixture
    def two(self, checkpoints):
        """A checkpoint, and a newer one of which both files are returned."""
        checkpoints.save(1, {"step": 1}, SEALED)
        checkpoints.save(2, {"step": 2, "weights": torch.arange(8.0)}, SEALED)
        (data,) = checkpoints.directory.glob("*2-*.pt")
        return data, checkpoints.directory / "step-0000000002.json"

    def expect_the_first(self, checkpoints, warnings, word):
        assert checkpoints.load(warnings.append)["step"] == 1
        (warning,) = warnings
        assert word in warning
        assert "continuing from step-0000000001" in warning

    def test_every_tenth_byte(self, checkpoints, two, warnings):
        data, _ = two
        for position in range(0, data.stat().st_size, 10):
            flip(data, position)
            self.expect_the_first(checkpoints, warnings, "is damaged")
            flip(data, position)
            warnings.clear()
        assert checkpoints.load(warnings.append)["step"] == 2

    def test_every_byte_of_the_manifest(self, checkpoints, two, warnings):
        _, manifest = two
        for position in range(manifest.stat().st_size):
            flip(manifest, position)
            state = checkpoints.load(warnings.append)
            assert state["step"] == 1, position
            assert len(warnings) == 1
            warnings.clear()
            flip(manifest, position)

    @pytest.mark.parametrize("left", [0, 1, 100, -1])
    def test_truncated(self, checkpoints, two, warnings, left):
        data, _ = two
        data.write_bytes(data.read_bytes()[:left])
        self.expect_the_first(checkpoints, warnings, "is damaged")

    def test_its_data_is_gone(self, checkpoints, two, warnings):
        two[0].unlink()
        self.expect_the_first(checkpoints, warnings, "is missing")

    def test_without_a_manifest_it_does_not_exist(self, checkpoints, two, warnings):
        two[1].unlink()
        assert checkpoints.load(warnings.append)["step"] == 1

    def test_without_any_manifest_it_is_said_that_all_is_lost(self, checkpoints, two, warnings):
        for manifest in checkpoints.directory.glob("*.json"):
            manifest.unlink()
        with pytest.raises(RunError, match=r"no checkpoint has its manifest. Nothing was changed"):
            checkpoints.load(warnings.append)

    @pytest.mark.parametrize(
        "content", [b"", b"[]", b"1", b"null", b"{", b"\xff", b'{"format": 1}']
    )
    def test_a_manifest_that_is_none(self, checkpoints, two, warnings, content):
        two[1].write_bytes(content)
        self.expect_the_first(checkpoints, warnings, "step-0000000002.json")

    def test_a_future_format(self, checkpoints, two, warnings):
        two[1].write_text(json.dumps({"format": 3, "digest": "of another kind"}))
        self.expect_the_first(checkpoints, warnings, "has format 3, this version reads up to 2")

    def test_all_damaged_names_each(self, checkpoints, two, warnings):
        for data in checkpoints.directory.glob("*.pt"):
            flip(data, 50)
        with pytest.raises(
            RunError,
            match=r"no checkpoint can be used: step-0000000002-.*is damaged.*"
            r"step-0000000001-.*is damaged.*Nothing was changed",
        ):
            checkpoints.load(warnings.append)
        assert not warnings


class Poison:
    """Runs a command when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("nested", [False, True])
def test_a_poisoned_checkpoint_with_a_fitting_manifest_is_not_run(checkpoints, place, nested):
    proof = place / "executed"
    poison = Poison(f"touch {proof}")
    content = {"format": 1, "method": {"optimizer": [poison]}} if nested else poison
    checkpoints.directory.mkdir()
    foreign = checkpoints.directory / "foreign"
    torch.save(content, foreign)
    digest = hashlib.sha256(foreign.read_bytes()).hexdigest()
    data = foreign.rename(checkpoints.directory / f"step-0000000001-{digest[:12]}.pt")
    manifest = {"format": 1, "step": 1, "file": data.name, "bytes": data.stat().st_size}
    text = json.dumps({**manifest, "sha256": digest})
    (checkpoints.directory / "step-0000000001.json").write_text(text)

    with pytest.raises(RunError, match="refused: it holds more than tensors and plain data"):
        checkpoints.load(lambda _: None)
    assert not proof.exists()
    # The poison works where it is let in.
    torch.load(data, weights_only=False)
    assert proof.exists()


class TestInARun:
    @pytest.fixture
    def interrupted(self, program, at_call, tiny_flags, place):
        """A run killed in its third epoch, with two checkpoints."""
        flags = ["train", *tiny_flags, "--checkpoint-every", 4, "--out", "run"]
        assert program(*flags, setup=at_call("os:fsync", 30)).code == -9
        return place / "run", [*flags, "--resume"]

    def test_the_one_before_is_used_and_the_result_is_the_same(
        self, interrupted, program, newest, undisturbed, outcome
    ):
        directory, flags = interrupted
        flip(newest(directory)[0], 1000)
        finished = program(*flags)
        assert finished.code == 0
        (warning,) = [line for line in finished.err.splitlines() if "warning" in line]
        assert newest(directory)[0].name not in warning
        assert "is damaged" in warning
        assert "continuing from step-" in warning
        assert outcome(directory) == undisturbed()

    def test_both_damaged_is_an_error_and_nothing_is_touched(
        self, interrupted, program, newest, contents
    ):
        directory, flags = interrupted
        for age in (0, 1):
            flip(newest(directory, age)[0], 1000)
        before = contents(directory)
        finished = program(*flags)
        assert finished.code == 1
        assert "no checkpoint can be used" in finished.err
        assert "Traceback" not in finished.err
        assert len(finished.err.splitlines()) == 1
        assert contents(directory) == before

    def test_records_shorter_than_the_checkpoint_counts_on(self, interrupted, program, contents):
        directory, flags = interrupted
        metrics = directory / "metrics.jsonl"
        metrics.write_bytes(metrics.read_bytes()[:100])
        before = contents(directory)
        finished = program(*flags)
        assert finished.code == 1
        assert "metrics.jsonl was cut or added to: it has 100 bytes" in finished.err
        assert contents(directory) == before

    def test_a_model_that_has_changed(self, program, tiny_flags, place):
        (place / "own.py").write_text(OWN_NET.format(width=4))
        flags = [*tiny_flags, "--model", "own:net", "--out", "run"]
        assert program("train", *flags, "--stop-after", 1).code == 0
        (place / "own.py").write_text(OWN_NET.format(width=5))
        finished = program("train", "--out", "run", "--resume")
        assert finished.code == 1
        assert "does not fit the model and the data" in finished.err
        assert "Traceback" not in finished.err


OWN_NET = """
from torch import nn


def net(classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, {width}), nn.ReLU(), nn.Linear({width}, 10))
"""


def test_a_checkpoint_is_a_plain_archive_of_torch(complete, newest):
    assert zipfile.is_zipfile(newest(complete())[0])


def test_the_last_two_are_kept_through_a_run(tiny, place):
    run(tiny(checkpoint_every=4), place)
    assert len(list((place / "checkpoints").iterdir())) == 4
    assert Checkpoints(place / "checkpoints").steps() == [18, 16]
