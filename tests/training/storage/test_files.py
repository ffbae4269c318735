"""A disk that is full, read-only or failing: words, exit code 1, and what was saved is intact."""

import errno
import json
import math
import os
import shutil
import subprocess

import pytest

from annealtune.errors import RunError
from annealtune.training.storage.files import (
    DamageError,
    RecordFile,
    finite,
    read_json,
    write_atomically,
    write_json,
)


@pytest.fixture
def disk(place):
    """A file system of its own; ``remount`` changes its options."""
    path = place / "disk"
    path.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "annealtune-test", path]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    try:
        answer = mount("size=10m")
    except FileNotFoundError:
        pytest.skip("there is no mount on this system")
    if answer.returncode:
        pytest.skip(f"mounting needs a privilege: {answer.stderr.strip()}")

    def remount(options):
        answer = mount(f"remount,{options}")
        assert answer.returncode == 0, answer.stderr

    path_and_remount = (path, remount)
    yield path_and_remount
    subprocess.run(["umount", path], check=True)


def expect_one_line(finished, *words):
    assert finished.code == 1, finished.err
    assert "Traceback" not in finished.err
    last = finished.err.splitlines()[-1]
    assert last.startswith("annealtune: ")
    for word in words:
        assert word in last


# Pages of 4 KiB: from no room for a second file to no room for the last checkpoint.
@pytest.mark.parametrize("size", [4, 16, 48, 64, 96])
def test_full_at_any_write(disk, program, tiny_flags, undisturbed, outcome, size):
    path, remount = disk
    remount(f"size={size}k")
    flags = ["train", *tiny_flags, "--checkpoint-every", 2, "--out", path / "run"]
    expect_one_line(program(*flags), "o space left", "is intact", "--resume")
    assert not list(path.rglob("*.tmp"))
    remount("size=10m")
    assert program(*flags, "--resume-or-start").code == 0
    assert outcome(path / "run") == undisturbed()


def test_full_later_keeps_the_last_good_checkpoint(
    disk, program, at_call, tiny_flags, undisturbed, outcome, contents
):
    path, _ = disk
    flags = ["train", *tiny_flags, "--checkpoint-every", 2, "--out", path / "run"]
    killed = program(*flags, setup=at_call("annealtune.training.session:Session.end_epoch", 2))
    assert killed.code == -9
    before = contents(path / "run" / "checkpoints")
    (path / "ballast").write_bytes(bytes(shutil.disk_usage(path).free))
    expect_one_line(program(*flags, "--resume"), "o space left", "is intact")
    assert contents(path / "run" / "checkpoints") == before
    (path / "ballast").unlink()
    assert program(*flags, "--resume").code == 0
    assert outcome(path / "run") == undisturbed()


def test_read_only(disk, program, tiny_flags, contents):
    path, remount = disk
    flags = ["train", *tiny_flags, "--epochs", 1, "--out", path / "run"]
    assert program(*flags).code == 0
    before = contents(path)
    remount("ro")
    for out in (path / "run", path / "new"):
        finished = program("train", *tiny_flags, "--out", out, "--resume-or-start")
        expect_one_line(finished, "cannot be used as a run directory", "Read-only file system")
    # Looking needs no writing.
    assert program("inspect", path / "run").code == 0
    assert program("evaluate", path / "run").code == 0
    assert contents(path) == before
    remount("rw")


@pytest.mark.parametrize("below", ["", "below"])
def test_a_file_in_place_of_the_directory(program, tiny_flags, place, below):
    (place / "file").write_text("mine")
    finished = program("train", *tiny_flags, "--out", place / "file" / below)
    expect_one_line(finished, "cannot be used as a run directory")
    assert (place / "file").read_text() == "mine"


class TestWriting:
    def test_the_old_content_stays_until_the_new_one_is_whole(self, place, monkeypatch):
        path = place / "file"
        path.write_bytes(b"old")

        def full(descriptor):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"no space left.*is intact"):
            write_atomically(path, b"new")
        assert path.read_bytes() == b"old"
        assert list(place.iterdir()) == [path]

    def test_what_json_does_not_know_is_null(self, place):
        numbers = {"a": math.nan, "b": [math.inf, 1.5], "c": {"d": -math.inf}, "e": (True, None)}
        write_json(place / "file", numbers)
        text = (place / "file").read_text()
        expected = {"a": None, "b": [None, 1.5], "c": {"d": None}, "e": [True, None]}
        assert json.loads(text, parse_constant=pytest.fail) == expected == finite(numbers)
        assert read_json(place / "file") == expected

    @pytest.mark.parametrize("content", [b"", b"[]", b"3", b"{", b"\xff\xfe"])
    def test_what_is_no_object_is_named(self, place, content):
        (place / "file").write_bytes(content)
        with pytest.raises(RunError, match="file: cannot be read"):
            read_json(place / "file")


class TestRecordFile:
    @pytest.fixture
    def file(self, place):
        return RecordFile(place / "records.jsonl")

    def test_nothing_written_is_nothing_read(self, file):
        assert file.read() == []
        file.check(file.written)
        file.cut(0)

    def test_cut_back_to_a_checkpoint(self, file):
        file.append({"a": 1})
        written = file.written
        file.append({"a": 2})
        file.check(written)
        file.cut(written[0])
        assert file.written == written
        file.append({"a": 3})
        assert [record["a"] for record in file.read()] == [1, 3]

    def test_a_line_in_half_is_no_record(self, file):
        file.append({"a": 1})
        with file.path.open("ab") as half:
            half.write(b'{"a": 2, "b"')
        assert file.read() == [{"a": 1}]

    def test_a_damaged_line_is_named(self, file):
        file.path.write_bytes(b'{"a": 1}\n{"a": \n{"a": 3}\n')
        with pytest.raises(RunError, match=r"records\.jsonl"):
            file.read()

    @pytest.mark.parametrize("content", [b"", b'{"a": 1}', b'{"a": 2}\n'])
    def test_what_a_checkpoint_counts_on_must_be_there(self, file, content):
        file.append({"a": 1})
        file.path.write_bytes(content)
        with pytest.raises(DamageError, match=r"records\.jsonl"):
            file.check(file.written)
