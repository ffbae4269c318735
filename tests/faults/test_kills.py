"""A run that is killed without warning, anywhere and often, ends as if nothing had happened."""

import random
import signal
import subprocess
import sys
import time

import pytest

METHODS = ("sgd-sa", "ssa", "adamw", "self-tuned")
ENTRY = "annealtune.training.runs"
DIRECTORY = "annealtune.training.storage.directory"
BEST = "annealtune.training.storage.best:BestWeights"

# While the weights are those of a tentative step, or half updated.
INSIDE_A_STEP = {
    "sgd-sa": "annealtune.optim.embedded:EmbeddedTuner._decide",
    "ssa": "annealtune.optim.stochastic_sa:StochasticSA._evaluate",
    "adamw": "torch.optim:AdamW.step",
    "self-tuned": "torch.optim:AdamW.step",  # of one arm, while there is a race
}


MOMENTS = {
    "in the second epoch, inside a step": (None, 9),
    "before the config is written": ("os:fsync", 1),
    "the first checkpoint is not yet forced to disk": ("os:fsync", 5),
    "it is not yet in its place": ("pathlib:Path.replace", 2),
    "its manifest is not": ("pathlib:Path.replace", 3),
    "old checkpoints are being removed": ("pathlib:Path.unlink", 9),
    "at the end of an epoch": (f"{ENTRY}:Session.end_epoch", 2),
    "the new best weights have not taken the place of the old ones": (f"{BEST}.commit", 2),
    "they have, and what is known of them has not": (f"{BEST}._write_facts", 2),
    "recorded and not yet saved": (f"{ENTRY}:EventFile.add", 2),
    "all is done but the seal": (f"{ENTRY}:RunDirectory.finish", 1),
    "all is sealed but the result is not there": (f"{DIRECTORY}:write_atomically", 3),
}
OF_THE_OTHERS = ("in the second epoch, inside a step", "its manifest is not")


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
from annealtune.training.storage.records import RecordFile
real, lines = RecordFile.append, []
def append(self, record):
    real(self, record)
    lines.append(self.path)
    if len(lines) == 3:
        os.truncate(self.path, self.size() - 20)
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
        ("annealtune.training.storage.checkpoint:Checkpoints.save", 3),
        ("annealtune.training.session:evaluate", 2),
        ("annealtune.training.storage.records:RecordFile.append", 2),
        (f"{ENTRY}:EventFile.add", 1),  # recorded, best weights kept, not saved
        (f"{ENTRY}:RunDirectory.remove_scratch", 1),  # right after the start
        (None, 0),  # at any time
    ]
    for kill in range(kills):
        target, most = moments.choice(points)
        if target is None:
            command = start("train", *flags, "--resume-or-start")
            time.sleep(moments.uniform(0, 0.4))
            command.send(signal.SIGKILL)
        else:
            after = moments.random() < 0.5
            setup = at_call(target, moments.randint(1, most), after=after)
            command = start("train", *flags, "--resume-or-start", setup=setup)
        finished = command.wait()
        assert finished.code == -signal.SIGKILL, (kill, target, finished.err)


@pytest.mark.parametrize(
    ("method", "kills", "epochs"),
    [
        ("sgd-sa", 6, 8),
        ("self-tuned", 6, 24),  # the shortest run with a race, which lasts eight steps
        *(pytest.param(method, 20, 40, marks=pytest.mark.slow) for method in METHODS),
    ],
)
def test_many_kills_leave_no_trace(
    method, kills, epochs, undisturbed, start, program, at_call, tiny_flags, place, outcome
):
    expected = undisturbed(method=method, epochs=epochs)
    flags = [*tiny_flags, "--method", method, "--epochs", epochs]
    flags += ["--checkpoint-every", 3, "--out", "killed"]
    kill_again_and_again(method, kills, start, at_call, flags, seed=kills)
    resumed = program("train", *flags, "--resume-or-start")
    assert resumed.code == 0, resumed.err
    assert outcome(place / "killed") == expected


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
