"""Storage that fails, is taken away or shared, and streams that close: nothing saved is lost.

A full and a read-only disk are in `tests/training/storage/test_files.py`.
"""

import json
import os
import random
import shutil
import signal
import time

import pytest

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
MOST_CALLS = 180

# Permissions bind root too once it has no capabilities.
ORDINARY = """
import ctypes
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
none = (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None, use_errno=True)
assert libc.capset(header, none) == 0, ctypes.get_errno()
"""

AT_THE_SECOND_END = """
import os, shutil
from annealtune.training.session import Session
real, calls = Session.end_epoch, []
def end_epoch(self, *scores):
    calls.append(None)
    if len(calls) == 2:
        {act}
    return real(self, *scores)
Session.end_epoch = end_epoch
"""


def expect_one_line(finished, *words):
    assert finished.code == 1, finished.err
    assert "Traceback" not in finished.err
    last = finished.err.splitlines()[-1]
    assert last.startswith("annealtune: ")
    for word in words:
        assert word in last


@pytest.fixture
def flags(tiny_flags):
    return ["train", *tiny_flags, "--checkpoint-every", 4, "--out", "run"]


class TestAFailingCall:
    @pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
    @pytest.mark.parametrize(
        "numbers",
        [
            pytest.param(sorted(random.Random(0).sample(range(1, 160), 2)), id="some"),
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


class TestUnreadable:
    """What cannot be read may be whole: nothing is concluded from it, cut or written."""

    @pytest.mark.parametrize(
        "name",
        [
            "checkpoints",
            "checkpoints/manifest",
            "checkpoints/state",
            "metrics.jsonl",
            "moves.jsonl",
            "best.safetensors",
            "task.json",
            "config.toml",
        ],
    )
    def test_is_named_and_everything_stays(
        self, program, flags, place, newest, contents, undisturbed, outcome, name
    ):
        directory = place / "run"
        assert program(*flags, "--stop-after", 2).code == 0
        state, manifest = newest(directory)
        found = {"checkpoints/state": state, "checkpoints/manifest": manifest}
        path = found.get(name, directory / name)
        before = contents(directory)
        mode = path.stat().st_mode
        path.chmod(0)
        for words in ([*flags, "--resume"], ["inspect", "run"], ["report", "run"]):
            refused = program(*words, setup=ORDINARY)
            assert refused.code != 0
            assert "Permission denied" in refused.err, (words, refused.err)
            assert path.name in refused.err
            assert "Traceback" not in refused.err
        path.chmod(mode)
        assert contents(directory) == before
        assert program(*flags, "--resume").code == 0
        assert outcome(directory) == undisturbed()

    @pytest.mark.parametrize("mode", [0, 0o444])
    def test_a_directory_is_listed_beside_the_others(self, program, flags, place, mode):
        assert program(*flags, "--epochs", 1).code == 0
        (place / "closed").mkdir()
        (place / "closed" / "config.toml").touch()
        (place / "closed").chmod(mode)
        listed = program("list", ".", setup=ORDINARY)
        assert listed.code == 0, listed.err
        assert "run" in listed.out
        assert "closed" in listed.out + listed.err


class TestWhileItRuns:
    @pytest.mark.parametrize(
        ("act", "words"),
        [
            ("os.unlink('run/metrics.jsonl')", "metrics.jsonl: was changed while the run went on"),
            (
                "os.truncate('run/metrics.jsonl', 5)",
                "metrics.jsonl: was changed while the run went on",
            ),
            (
                "(os.rename('run/metrics.jsonl', 'm'), os.symlink('../m', 'run/metrics.jsonl'))",
                "metrics.jsonl: is a symbolic link",
            ),
            ("os.unlink('run/.lock')", ".lock was removed while the run went on"),
            ("shutil.rmtree('run')", ".lock was removed while the run went on"),
            ("os.rename('run', 'elsewhere')", ".lock was removed while the run went on"),
        ],
    )
    def test_what_is_taken_away_is_noticed(self, program, flags, place, act, words):
        failed = program(*flags, setup=AT_THE_SECOND_END.format(act=act))
        expect_one_line(failed, words)
        assert not (place / "run" / "result.json").exists()

    @pytest.mark.parametrize("name", ["run", "elsewhere"])
    def test_a_directory_that_was_moved_goes_on_where_it_is(
        self, program, flags, place, undisturbed, outcome, name
    ):
        setup = AT_THE_SECOND_END.format(act="os.rename('run', 'elsewhere')")
        expect_one_line(program(*flags, setup=setup))
        if name == "run":
            (place / "elsewhere").rename(place / "run")
        assert program("train", "--out", name, "--resume").code == 0
        assert outcome(place / name) == undisturbed()

    def test_a_second_writer_after_the_lock_was_removed(
        self, start, program, flags, place, undisturbed, outcome, contents
    ):
        """The first one is held in its second epoch, finds the lock gone, and writes nothing."""
        setup = AT_THE_SECOND_END.format(
            act="(open('here', 'w').close(), os.kill(os.getpid(), 19))"
        )
        first = start(*flags, setup=setup)
        while not (place / "here").exists():
            time.sleep(0.01)
        (place / "run" / ".lock").unlink()
        assert program(*flags, "--resume").code == 0
        before = contents(place / "run")
        first.send(signal.SIGCONT)
        expect_one_line(first.wait(), ".lock was removed while the run went on")
        assert contents(place / "run") == before
        assert outcome(place / "run") == undisturbed()


class TestOthersFiles:
    """What a run finds in its directory and has not written."""

    def test_stay(self, program, flags, place):
        (place / "run" / ".tmpabcde1").mkdir(parents=True)
        (place / "run" / ".tmpabcdef").write_text("precious")
        assert program(*flags, "--stop-after", 1).code == 0
        assert (place / "run" / ".tmpabcdef").read_text() == "precious"

    def test_directories_are_in_nobodys_way(self, program, flags, place, newest):
        assert program(*flags, "--stop-after", 1).code == 0
        for name in (".tmpabcdef", "checkpoints/step-1.tmp", "checkpoints/x.tmp"):
            (place / "run" / name).mkdir()
        assert program(*flags, "--resume").code == 0

    @pytest.mark.timeout(60)
    def test_a_pipe_for_the_facts_of_the_best_weights(self, program, flags, place):
        assert program(*flags, "--stop-after", 1).code == 0
        (place / "run" / "best.json").unlink()
        os.mkfifo(place / "run" / "best.json")
        expect_one_line(program(*flags, "--resume"), "best.json: cannot be read: is not a file")


class TestLinks:
    @pytest.mark.parametrize("name", ["metrics.jsonl", "moves.jsonl", "best.json", "task.json"])
    def test_a_new_run_does_not_write_through_one(self, program, flags, place, name):
        (place / "run").mkdir()
        (place / "run" / name).symlink_to(place / "elsewhere")
        refused = program(*flags)
        assert refused.code == 2
        assert name in refused.err
        assert not (place / "elsewhere").exists()

    def test_neither_does_one_that_goes_on(self, program, flags, place):
        assert program(*flags, "--stop-after", 1).code == 0
        moves = place / "run" / "metrics.jsonl"
        moves.rename(place / "elsewhere")
        moves.symlink_to(place / "elsewhere")
        before = (place / "elsewhere").read_bytes()
        expect_one_line(program(*flags, "--resume"), "is a symbolic link")
        assert (place / "elsewhere").read_bytes() == before

    def test_scratch_files_are_not_written_through(
        self, program, flags, place, undisturbed, outcome
    ):
        (place / "run").mkdir()
        (place / "mine").write_text("mine")
        for name in ("config.toml.tmp", "best.safetensors.new.tmp", "result.json.tmp"):
            (place / "run" / name).symlink_to(place / "mine")
        assert program(*flags).code == 0
        assert (place / "mine").read_text() == "mine"
        assert outcome(place / "run") == undisturbed()

    def test_a_copy_by_hard_links_keeps_its_own(self, program, flags, place, undisturbed, outcome):
        assert program(*flags, "--stop-after", 2).code == 0
        shutil.copytree(place / "run", place / "copy", copy_function=os.link)
        for name in ("run", "copy"):
            assert program("train", "--out", name, "--resume").code == 0
        for name in ("run", "copy"):
            assert outcome(place / name) == undisturbed()
            assert program("inspect", name).code == 0

    def test_the_run_directory_may_be_one(self, program, flags, place, undisturbed, outcome):
        (place / "real").mkdir()
        (place / "run").symlink_to(place / "real")
        assert program(*flags).code == 0
        assert outcome(place / "real") == undisturbed()


@pytest.mark.parametrize("room", [0, 1, 2, 3, 5])
def test_few_descriptors(program, flags, place, undisturbed, outcome, room):
    """Enough or not: words or the same run, never half of one."""
    setup = f"""
import os, resource
highest = max(int(name) for name in os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (highest + {room}, highest + {room}))
"""
    finished = program(*flags, setup=setup)
    if finished.code:
        expect_one_line(finished, "Too many open files")
    assert program(*flags, "--resume-or-start").code == 0
    assert outcome(place / "run") == undisturbed()


STREAMS = {
    "closed": "import os, sys; os.close({0}); sys.{1} = None",
    "a full device": "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), {0})",
    "a pipe that nobody reads": (
        "import os; r, w = os.pipe(); os.close(r); os.dup2(w, {0}); os.close(w)"
    ),
}


class TestLostStreams:
    @pytest.mark.parametrize("way", STREAMS)
    @pytest.mark.parametrize("streams", [[1], [2], [1, 2]])
    def test_training_goes_on(self, program, flags, place, undisturbed, outcome, way, streams):
        names = {1: "stdout", 2: "stderr"}
        setup = "\n".join(STREAMS[way].format(number, names[number]) for number in streams)
        assert program(*flags, setup=setup).code == 0
        assert outcome(place / "run") == undisturbed()

    def test_a_reader_that_leaves_in_the_middle(self, program, flags, place, undisturbed, outcome):
        setup = "import os; r, w = os.pipe(); os.dup2(w, 2); os.close(w)\n"
        setup += AT_THE_SECOND_END.format(act="os.close(r)")
        setup = setup.replace("end_epoch(self, *scores):", "end_epoch(self, *scores, r=r):")
        assert program(*flags, setup=setup).code == 0
        assert outcome(place / "run") == undisturbed()

    def test_a_listing_that_cannot_be_written_is_an_error(self, program, flags, place):
        assert program(*flags, "--epochs", 1).code == 0
        finished = program("inspect", "run", setup=STREAMS["a full device"].format(1, "stdout"))
        assert finished.code != 0
        assert "No space left" in finished.err


# Whoever runs the tests may have been started by nohup.
HEEDED = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
    def test_saves_and_leaves(self, program, at_call, flags, place, undisturbed, outcome, number):
        left = program(*flags, setup=HEEDED + at_call(END, 2, number))
        assert left.code == 128 + number
        assert f"{number.name}: saved run at step" in left.err
        assert program(*flags, "--resume").code == 0
        assert outcome(place / "run") == undisturbed()

    def test_nohup_stays_nohup(self, program, at_call, flags, place, undisturbed, outcome):
        ignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        assert program(*flags, setup=ignored + at_call(END, 2, signal.SIGHUP)).code == 0
        assert outcome(place / "run") == undisturbed()

    @pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
    def test_before_there_is_anything_nothing_is_written(
        self, program, at_call, flags, place, number
    ):
        target = "annealtune.training.runs:make_session"
        left = program(*flags, setup=HEEDED + at_call(target, 1, number))
        assert left.code == 128 + number
        assert (
            left.err
            == f"annealtune: {number.name}: stopped before the run began; nothing was written\n"
        )
        assert [path.name for path in (place / "run").iterdir()] == [".lock"]


def test_a_hundred_thousand_epochs_are_sealed_in_linear_time(place):
    """The digest of the records is carried on, not taken anew at every epoch."""
    import hashlib

    from annealtune.training.storage import records

    file = records.RecordFile(place / "metrics.jsonl")
    taken = []

    class Counted:
        def __init__(self, content=b""):
            self._real = hashlib.new("sha256", content)

        def update(self, content):
            taken.append(len(content))
            self._real.update(content)

        def hexdigest(self):
            return self._real.hexdigest()

    file._digest = Counted()
    for epoch in range(300):
        file.append({"epoch": epoch})
        size, digest = file.seal()
    content = (place / "metrics.jsonl").read_bytes()
    assert [size, digest] == [len(content), hashlib.sha256(content).hexdigest()]
    assert sum(taken) == len(content)
    assert json.loads(content.splitlines()[-1]) == {"epoch": 299}
