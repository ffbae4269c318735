"""Storage that fails or cannot be read, and streams that close: nothing saved is lost.

A full and a read-only disk are in `tests/training/storage/test_files.py`.
"""

import random
import shutil
import signal

import pytest

from tests.training.storage.test_files import expect_one_line

END = "annealtune.training.session:Session.end_epoch"

# Every call that changes the disk is counted; one of them fails.
FAILING = """
import errno, os, pathlib, safetensors.torch
calls = []
def failing(owner, name):
    real = getattr(owner, name)
    def call(*args, **kwargs):
        calls.append(name)
        if len(calls) == {number}:
            raise OSError(errno.{error}, os.strerror(errno.{error}))
        return real(*args, **kwargs)
    setattr(owner, name, call)
for name in ("write", "fsync", "replace", "truncate", "unlink", "mkdir"):
    failing(os, name)
failing(pathlib.Path, "write_bytes")
failing(safetensors.torch, "save_model")
real_exit = os._exit
def leave(code):
    pathlib.Path("calls").write_text(" ".join(calls))
    real_exit(code)
os._exit = leave
"""
# More than a run of three epochs with a checkpoint every four steps makes.
MOST_CALLS = 120

# Permissions bind root too once it has no capabilities.
ORDINARY = """
import ctypes
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
none = (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None, use_errno=True)
assert libc.capset(header, none) == 0, ctypes.get_errno()
"""


@pytest.fixture
def flags(tiny_flags):
    return ["train", *tiny_flags, "--checkpoint-every", 4, "--out", "run"]


class TestAFailingCall:
    @pytest.mark.timeout(1200)  # forty runs of the program
    @pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
    @pytest.mark.parametrize(
        "numbers",
        [
            pytest.param(sorted(random.Random(0).sample(range(1, 80), 3)), id="some"),
            *(
                pytest.param(range(first, first + 20), id=f"{first} on", marks=pytest.mark.slow)
                for first in range(1, MOST_CALLS, 20)
            ),
        ],
    )
    def test_is_told_and_leaves_no_trace(
        self, program, flags, place, undisturbed, outcome, error, numbers
    ):
        for number in numbers:
            failed = program(*flags, setup=FAILING.format(number=number, error=error))
            made = (place / "calls").read_text().split()
            if failed.code:
                words = "o space left" if error == "ENOSPC" else "Input/output error"
                expect_one_line(failed, words)
            else:  # beyond the last call, or a directory that is there already
                assert len(made) < number or made[number - 1] == "mkdir", failed.err
            resumed = program(*flags, "--resume-or-start")
            assert resumed.code == 0, (number, resumed.err)
            assert outcome(place / "run") == undisturbed(), number
            shutil.rmtree(place / "run")

    def test_there_are_not_more_calls_than_are_tried(self, program, flags, place):
        assert program(*flags, setup=FAILING.format(number=0, error="EIO")).code == 0
        assert 60 < len((place / "calls").read_text().split()) < MOST_CALLS


@pytest.mark.parametrize(
    "name", ["checkpoints", "newest", "metrics.jsonl", "best.safetensors", "task.json"]
)
def test_what_cannot_be_read_may_be_whole_and_everything_stays(
    program, flags, place, newest, contents, undisturbed, outcome, name
):
    directory = place / "run"
    assert program(*flags, "--stop-after", 2).code == 0
    path = newest(directory) if name == "newest" else directory / name
    before = contents(directory)
    mode = path.stat().st_mode
    path.chmod(0)
    refused = program(*flags, "--resume", setup=ORDINARY)
    assert refused.code != 0
    assert "Permission denied" in refused.err
    assert path.name in refused.err
    assert "Traceback" not in refused.err
    path.chmod(mode)
    assert contents(directory) == before
    assert program(*flags, "--resume").code == 0
    assert outcome(directory) == undisturbed()


def test_a_directory_that_was_moved_goes_on_where_it_is(
    program, flags, place, undisturbed, outcome
):
    assert program(*flags, "--stop-after", 2).code == 0
    (place / "run").rename(place / "elsewhere")
    assert program("train", "--out", "elsewhere", "--resume").code == 0
    assert outcome(place / "elsewhere") == undisturbed()


STREAMS = {
    "closed": "import os, sys; os.close({0}); sys.{1} = None",
    "a full device": "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), {0})",
    "a pipe that nobody reads": (
        "import os; r, w = os.pipe(); os.close(r); os.dup2(w, {0}); os.close(w)"
    ),
}


@pytest.mark.parametrize("way", STREAMS)
def test_a_run_that_lost_its_streams_goes_on(program, flags, place, undisturbed, outcome, way):
    setup = "\n".join(STREAMS[way].format(*stream) for stream in ((1, "stdout"), (2, "stderr")))
    program(*flags, setup=setup)  # it may end where it cannot speak
    assert program(*flags, "--resume-or-start").code == 0
    assert outcome(place / "run") == undisturbed()


def test_a_listing_that_cannot_be_written_is_an_error(program, flags):
    assert program(*flags, "--epochs", 1).code == 0
    finished = program("inspect", "run", setup=STREAMS["a full device"].format(1, "stdout"))
    assert finished.code != 0
    assert "No space left" in finished.err


def test_a_hangup_saves_and_leaves(program, at_call, flags, place, undisturbed, outcome):
    left = program(*flags, setup=at_call(END, 2, signal.SIGHUP))
    assert left.code == 128 + signal.SIGHUP
    assert program(*flags, "--resume").code == 0
    assert outcome(place / "run") == undisturbed()


def test_nohup_stays_nohup(program, at_call, flags, place, undisturbed, outcome):
    ignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    assert program(*flags, setup=ignored + at_call(END, 2, signal.SIGHUP)).code == 0
    assert outcome(place / "run") == undisturbed()
