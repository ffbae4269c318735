"""What is killed without warning, anywhere and often, ends as if nothing had happened.

With the slow ones these are 484 kills and the sample: 396 of runs of every method, 36 inside races,
36 of studies, 16 of downloads.
"""

import contextlib
import hashlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import psutil
import pytest

from annealtune.training.config.run_config import MethodName

METHODS = get_args(MethodName)
ENTRY = "annealtune.training.runs"
STORAGE = "annealtune.training.storage"
DIRECTORY = f"{STORAGE}.directory:RunDirectory"

# While the weights are those of a tentative step, or half updated.
INSIDE_A_STEP = {
    "sgd-sa": "annealtune.optim.embedded:AcceptTest.measure",
    "adamw-sa": "annealtune.optim.embedded:AcceptTest.measure",
    "random-rate": "annealtune.optim.embedded:AcceptTest.measure",
    "ssa": "annealtune.optim.stochastic_sa:StochasticSA._evaluate",
    "adamw": "torch.optim:AdamW.step",
    "self-tuned": "torch.optim:AdamW.step",  # of one arm, while there is a race
    "sgd": "torch.optim:SGD.step",
    "scheduled-sgd": "torch.optim:SGD.step",
}


MOMENTS = {
    "in the second epoch, inside a step": (None, 9),
    "before the config is written": ("os:fsync", 1),
    "before the task is": ("os:fsync", 3),
    "the first checkpoint is not yet forced to disk": ("os:fsync", 5),
    "it is not yet in its place": ("pathlib:Path.replace", 3),
    "it is, and those of before are not yet removed": (
        f"{STORAGE}.checkpoint:Checkpoints._names",
        2,
    ),
    "old checkpoints are being removed": ("pathlib:Path.unlink", 9),
    "at the end of an epoch": ("annealtune.training.session:Session.end_epoch", 2),
    "there are new best weights, and what is known of them are the old ones'": (
        f"{STORAGE}.directory:write_json",
        3,
    ),
    "recorded and not yet saved": (f"{ENTRY}:_Run._save", 2),
    "the first epoch is recorded and nothing is saved": (
        f"{STORAGE}.checkpoint:Checkpoints.save",
        1,
    ),
    "all is done but the seal": (f"{ENTRY}:seal_run", 1),
    "all is sealed but the result is not there": (f"{STORAGE}.seal:write_atomically", 2),
}
OF_THE_OTHERS = ("in the second epoch, inside a step", "it is not yet in its place")


@pytest.mark.parametrize(
    ("method", "moment"),
    [("sgd-sa", moment) for moment in MOMENTS]
    + [(method, moment) for method in ("ssa", "adamw") for moment in OF_THE_OTHERS],
)
def test_one_kill_leaves_no_trace(
    method, moment, undisturbed, program, at_call, tiny_flags, place, outcome
):
    target, count = MOMENTS[moment]
    expected = undisturbed(method=method)
    flags = [*tiny_flags, "--method", method, "--checkpoint-every", 2, "--out", "killed"]
    killed = program("train", *flags, setup=at_call(target or INSIDE_A_STEP[method], count))
    assert killed.code == -signal.SIGKILL, killed.err
    resumed = program("train", *flags, "--resume-or-start")
    assert resumed.code == 0, resumed.err
    assert outcome(place / "killed") == expected


HALF_A_LINE = """
import os, signal
from annealtune.training.storage.files import RecordFile
real, lines = RecordFile.append, []
def append(self, record):
    real(self, record)
    lines.append(self.path)
    if len(lines) == 3:
        os.truncate(self.path, self.path.stat().st_size - 20)
        os.kill(os.getpid(), signal.SIGKILL)
RecordFile.append = append
"""


def test_half_a_line_leaves_no_trace(undisturbed, program, tiny_flags, place, outcome):
    flags = ["train", *tiny_flags, "--out", "killed"]
    assert program(*flags, setup=HALF_A_LINE).code == -signal.SIGKILL
    assert not (place / "killed" / "metrics.jsonl").read_text().endswith("\n")
    assert program(*flags, "--resume-or-start").code == 0
    assert outcome(place / "killed") == undisturbed()


def kill_again_and_again(method, kills, start, at_call, flags, seed):
    """Kill a run several times, each at a random moment of a random kind."""
    moments = random.Random(seed)
    points = [
        (INSIDE_A_STEP[method], 9),
        ("os:fsync", 9),
        ("pathlib:Path.replace", 5),
        (f"{STORAGE}.checkpoint:Checkpoints.save", 3),
        ("annealtune.training.session:Session.score", 2),
        (f"{STORAGE}.files:RecordFile.append", 2),
        (f"{ENTRY}:_Run._save", 1),  # recorded, best weights kept, not saved
        (f"{DIRECTORY}._remove_scratch", 1),  # right after the start
        (None, 0),  # at any time
    ]
    for kill in range(kills):
        target, most = moments.choice(points)
        if target is None:
            command = start("train", *flags, "--resume-or-start")
            time.sleep(moments.uniform(0, 0.25))
            command.send(signal.SIGKILL)
        else:
            after = moments.random() < 0.5
            setup = at_call(target, moments.randint(1, most), after=after)
            command = start("train", *flags, "--resume-or-start", setup=setup)
        finished = command.wait()
        assert finished.code == -signal.SIGKILL, (kill, target, finished.err)


@pytest.mark.parametrize(
    ("method", "kills", "epochs", "seed"),
    [
        ("sgd-sa", 6, 8, 6),
        ("self-tuned", 6, 24, 6),  # the shortest run with a race, which lasts eight steps
        *(
            pytest.param(method, 22, 60, seed, marks=pytest.mark.slow)
            for method in METHODS
            for seed in (1, 2)
        ),
    ],
)
def test_many_kills_leave_no_trace(
    method, kills, epochs, seed, undisturbed, start, program, at_call, tiny_flags, place, outcome
):
    expected = undisturbed(method=method, epochs=epochs)
    flags = [*tiny_flags, "--method", method, "--epochs", epochs]
    flags += ["--checkpoint-every", 3, "--out", "killed"]
    kill_again_and_again(method, kills, start, at_call, flags, seed)
    resumed = program("train", *flags, "--resume-or-start")
    assert resumed.code == 0, resumed.err
    assert outcome(place / "killed") == expected


@pytest.mark.parametrize(
    ("seed", "epochs", "most"),
    # The race of the short run has eight steps, that of the long one ten or more with four arms.
    [(0, 24, 8), *(pytest.param(seed, 60, 11, marks=pytest.mark.slow) for seed in range(12))],
)
def test_three_kills_inside_a_race_leave_no_trace(
    seed, epochs, most, undisturbed, program, at_call, tiny_flags, place, outcome
):
    chance = random.Random(seed)
    expected = undisturbed(method="self-tuned", epochs=epochs)
    flags = ["train", *tiny_flags, "--method", "self-tuned", "--epochs", epochs]
    flags += ["--out", "killed", "--resume-or-start"]
    for _ in range(3):
        setup = at_call(INSIDE_A_STEP["self-tuned"], chance.randint(2, most))
        killed = program(*flags, "--checkpoint-every", 1, setup=setup)
        assert killed.code == -signal.SIGKILL, killed.err
        assert '"races"' not in read_if_there(place / "killed" / "metrics.jsonl")
    assert program(*flags).code == 0
    assert outcome(place / "killed") == expected


def read_if_there(path):
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_real_process_killed_from_outside(
    undisturbed, program, tiny_flags, place, outcome, cold_environment, kills
):
    expected = undisturbed(epochs=20)
    flags = [*tiny_flags, "--epochs", "20", "--checkpoint-every", "5", "--out", "killed"]
    command = [sys.executable, "-m", "annealtune", "train", *flags]
    moments = random.Random(0)
    for _ in range(kills):
        process = subprocess.Popen(
            [*command, "--resume-or-start"],
            cwd=place,
            env=cold_environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in process.stderr:
            if line.startswith("epoch"):
                break
        time.sleep(moments.uniform(0, 0.05))
        process.kill()
        process.stderr.close()
        assert process.wait() == -signal.SIGKILL
    assert not (place / "killed" / "result.json").exists()
    assert program("train", *flags, "--resume-or-start").code == 0
    assert outcome(place / "killed") == expected


def some_and_all(few, many):
    """A few moments in every run of the tests, the others in the slow ones."""
    return [*few, *(pytest.param(moment, marks=pytest.mark.slow) for moment in many)]


FETCH = """
import os
from pathlib import Path
from annealtune.training.data import download
from annealtune.training.data.download import PublishedFile
download.CHUNK = 100_000
{sabotage}
download.fetch(PublishedFile({name!r}, {digest!r}, {url!r}, {size}), Path("data"))
os._exit(0)
"""


@pytest.mark.parametrize("seed", some_and_all([0], [1, 2, 3]))
def test_a_download(seed, server, program, at_call, place):
    """Killed four times."""
    chance = random.Random(seed)
    digest = f"sha256:{hashlib.sha256(server.content).hexdigest()}"
    facts = {"name": "file.gz", "digest": digest, "url": f"{server.address}/file.gz"}
    facts["size"] = len(server.content)
    for kill in range(4):
        sabotage = at_call("http.client:HTTPResponse.read", chance.randint(1, 7))
        if kill == 3:
            sabotage = at_call(chance.choice(("os:fsync", "pathlib:Path.replace")), 1)
        setup = FETCH.format(sabotage=sabotage, **facts)
        assert program("train", setup=setup).code == -signal.SIGKILL
    assert program("train", setup=FETCH.format(sabotage="", **facts)).code == 0
    assert (place / "data" / "file.gz").read_bytes() == server.content
    assert sorted(path.name for path in (place / "data").iterdir()) == [".file.gz.lock", "file.gz"]


def kill_all(command):
    """Kill a study and its runs at one moment, as a power cut would."""
    command.send(signal.SIGSTOP)
    runs = psutil.Process(command.pid).children(recursive=True)
    command.send(signal.SIGKILL)
    for run in runs:
        with contextlib.suppress(psutil.NoSuchProcess):
            run.kill()
    psutil.wait_procs(runs, timeout=10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_study_killed_twelve_times(seed, start, fork_runs, place, outcome):
    """The parent alone, whose runs go on without it, or the whole group."""
    (place / "tiny.toml").write_text(STUDY)
    words = ["study", "tiny.toml", "--methods", "sgd-sa,self-tuned", "--seeds", "0-2", "--jobs", 2]
    whole = start(*words, "--out", "whole", setup=fork_runs).wait()
    assert whole.code == 0, whole.err
    chance = random.Random(seed)
    for kill in range(12):
        command = start(*words, "--out", "study", setup=fork_runs)
        time.sleep(chance.uniform(0, 0.5))
        if kill % 2:
            command.send(signal.SIGKILL)
        else:
            kill_all(command)
        assert command.wait().code == -signal.SIGKILL, "the study is too short for this machine"
    finished = start(*words, "--out", "study", setup=fork_runs).wait()
    assert finished.code == 0, finished.err
    assert study_outcome(place / "study", outcome) == study_outcome(place / "whole", outcome)


STUDY = """
model = "mlp-w8"
train_size = 200
batch_size = 30
epochs = 60
threads = 1
"""


def study_outcome(study: Path, outcome):
    return {path.name: outcome(path) for path in sorted((study / "runs").iterdir())}
