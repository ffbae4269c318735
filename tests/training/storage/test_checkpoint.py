"""Checkpoints: two are kept, damage is found, the one before is used."""

import os

import pytest
import torch

from annealtune.errors import RunError
from annealtune.training.runs import run
from annealtune.training.storage.checkpoint import Checkpoints
from annealtune.training.storage.files import DamageError


@pytest.fixture
def checkpoints(place):
    return Checkpoints(place / "checkpoints")


@pytest.fixture
def load(checkpoints):
    """Loads the newest good checkpoint, and returns what was warned of."""

    def load(check=lambda _: None):
        warnings = []
        return checkpoints.load(warnings.append, check), warnings

    return load


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def files(checkpoints):
    return sorted(path.name for path in checkpoints.directory.iterdir())


class TestKeeping:
    def test_nothing_saved_is_nothing_found(self, checkpoints, load):
        assert load() == (None, [])
        assert checkpoints.steps() == []

    def test_the_newest_of_the_last_two_comes_back(self, checkpoints, load):
        for step in (1, 2, 30):
            checkpoints.save(step, {"weights": torch.full((3,), float(step))})
        state, warnings = load()
        assert torch.equal(state["weights"], torch.full((3,), 30.0))
        assert checkpoints.steps() == [30, 2]
        assert not warnings

    def test_order_is_by_number_however_long(self, checkpoints, load):
        for step in (9_999_999_999, 10_000_000_000):
            checkpoints.save(step, {"step": step})
        assert load()[0]["step"] == 10_000_000_000

    def test_a_step_saved_twice_is_one_checkpoint(self, checkpoints, load):
        checkpoints.save(3, {"of": "before"})
        checkpoints.save(5, {"of": "first"})
        checkpoints.save(5, {"of": "second"})
        assert load()[0]["of"] == "second"
        assert checkpoints.steps() == [5, 3]

    def test_a_step_saved_twice_keeps_the_first_until_the_second_is_whole(
        self, checkpoints, load, monkeypatch
    ):
        checkpoints.save(5, {"of": "first"})
        before = files(checkpoints)

        def full(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match="no space left"):
            checkpoints.save(5, {"of": "second"})
        assert files(checkpoints) == before
        assert load()[0]["of"] == "first"

    def test_what_was_passed_over_goes_with_the_next_save(self, checkpoints, load):
        for step in (10, 20):
            checkpoints.save(step, {"step": step})
        (damaged,) = checkpoints.directory.glob("*20-*.pt")
        flip(damaged, 100)
        assert load()[0]["step"] == 10
        checkpoints.save(15, {"step": 15})
        assert checkpoints.steps() == [15, 10]
        assert not damaged.exists()

    def test_the_last_two_are_kept_through_a_run(self, tiny, place):
        run(tiny(checkpoint_every=4), place)
        assert len(list((place / "checkpoints").iterdir())) == 2
        assert Checkpoints(place / "checkpoints").steps() == [18, 16]


class TestDamage:
    @pytest.fixture
    def second(self, checkpoints):
        """The newer of two checkpoints."""
        checkpoints.save(1, {"step": 1})
        checkpoints.save(2, {"step": 2, "weights": torch.arange(8.0)})
        (path,) = checkpoints.directory.glob("*2-*.pt")
        return path

    def expect_the_first(self, load, second, **options):
        state, warnings = load(**options)
        assert state["step"] == 1
        (warning,) = warnings
        assert "continuing from step 1" in warning

    def test_every_tenth_byte(self, load, second):
        for position in range(0, second.stat().st_size, 10):
            flip(second, position)
            self.expect_the_first(load, second)
            flip(second, position)
        assert load()[0]["step"] == 2

    @pytest.mark.parametrize("left", [0, 1, 100, -1])
    def test_truncated(self, load, second, left):
        second.write_bytes(second.read_bytes()[:left])
        self.expect_the_first(load, second)

    def test_what_it_counts_on_is_gone(self, load, second):
        def check(state):
            if state["step"] == 2:
                raise DamageError("metrics.jsonl was cut")

        self.expect_the_first(load, second, check=check)

    def test_all_damaged_names_each(self, checkpoints, load, second):
        for path in checkpoints.directory.iterdir():
            flip(path, 50)
        with pytest.raises(RunError) as refused:
            load()
        assert all(name in str(refused.value) for name in files(checkpoints))


class TestInARun:
    @pytest.fixture
    def interrupted(self, program, at_call, tiny_flags, place):
        """A run killed in its third epoch, with two checkpoints."""
        flags = ["train", *tiny_flags, "--checkpoint-every", 4, "--out", "run"]
        assert program(*flags, setup=at_call("os:fsync", 25)).code == -9
        return place / "run", [*flags, "--resume"]

    def test_the_one_before_is_used_and_the_result_is_the_same(
        self, interrupted, program, newest, undisturbed, outcome
    ):
        directory, flags = interrupted
        damaged = newest(directory)
        flip(damaged, 1000)
        finished = program(*flags)
        assert finished.code == 0
        (warning,) = [line for line in finished.err.splitlines() if "warning" in line]
        assert damaged.name in warning
        assert outcome(directory) == undisturbed()

    def test_both_damaged_is_an_error_and_nothing_is_touched(
        self, interrupted, program, newest, contents
    ):
        directory, flags = interrupted
        for age in (0, 1):
            flip(newest(directory, age), 1000)
        before = contents(directory)
        finished = program(*flags)
        assert finished.code == 1
        assert "no checkpoint can be used" in finished.err
        assert len(finished.err.splitlines()) == 1
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
