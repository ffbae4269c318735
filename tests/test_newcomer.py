"""The newcomer's list: what a new user types in the first hour, in order, and what must appear.

Each line is typed in the same directory, after those above it. Lines that only have to be quick run
as the installed script does, from nothing; those that need torch in a process that has it already.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from annealtune.cli import COMMANDS

SOURCE = Path(__file__).parents[1] / "src"
RUN = "runs/digits-mlp-w4-self-tuned-seed0"
# A run that is short and long enough for a race.
QUICK = "--model mlp-w4 --train-size 600 --epochs 20"
COLD, WARM = False, True

# Whether it needs torch, what is typed, the exit code, and what must be in the output.
LIST = (
    (COLD, "--version", 0, ["annealtune", "torch", "Python"]),
    (COLD, "", 0, [rf"\n  {name} +\w" for name in COMMANDS]),
    (COLD, "trian", 2, ["'train'"]),
    (COLD, "train --help", 0, ["--epochs N", "annealtune config --method NAME"]),
    # The first run: it finds its rate, and says where the weights are.
    (WARM, f"train {QUICK}", 0, ["starting: self-tuned", "race .*won", "epoch 20/20", "weights: "]),
    (WARM, f"inspect {RUN}", 0, ["state +finished", "rate", "race", "test +accuracy"]),
    (WARM, f"evaluate {RUN}", 0, [r"test accuracy \d\d"]),
    # Again: a new directory, never over the old one; or go on, where there is something to go on.
    (WARM, f"train {QUICK} --epochs 1", 0, [f"weights: {RUN}-2/best"]),
    (WARM, f"train --out {RUN} --resume", 0, ["test accuracy", "best epoch"]),
    (WARM, f"train {QUICK} --out {RUN}", 2, ["--resume"]),
    (COLD, "train --resume --out runs/nowhere", 2, ["there is no run in runs/nowhere"]),
    (WARM, f"train {QUICK} --stop-after 2 --out half", 0, ["2 of 20 epochs", "half --resume"]),
    (WARM, "train --out half --resume", 0, ["continuing at step", "weights: half/best"]),
    # Words that are nearly right.
    (COLD, "train --epoch 3", 2, ["--epochs"]),
    (COLD, "train --method adam", 2, [r"did you mean 'adamw'\?"]),
    (COLD, "train --data cifar", 2, [r"did you mean 'cifar10'\?"]),
    (WARM, "train --data cifar10", 1, ["cifar10", "--download"]),
    # The settings in a file, another method with an option of its own, pictures of one's own.
    (COLD, "config --model mlp-w4 --train-size 200", 0, ['method = "self-tuned"']),
    (
        WARM,
        "train my.toml --method sgd-sa --set sgd-sa.strategy=tabu --epochs 1 --out tabu",
        0,
        ["starting: sgd-sa", "accepted", "weights: tabu/best.safetensors"],
    ),
    (
        WARM,
        "train --data image-folder --data-dir pictures --model mlp-w4 --epochs 1 --out mine",
        0,
        ["weights: mine/best.safetensors"],
    ),
    # Several methods and seeds, and the page about them.
    (COLD, "study dmo", 2, [r"did you mean 'demo'\?"]),
    (WARM, "study my.toml --methods adamw,self-tuned --seeds 0-1 --epochs 2", 0, ["4 finished"]),
    (WARM, "report studies/my", 0, [r"studies/my/report/index\.html"]),
    (WARM, f"report {RUN}", 0, [f"{RUN}/report/index.html"]),
    (COLD, "reproduce", 0, ["table-1", "figure-1"]),
)


@pytest.fixture
def desk(place):
    """A directory with a folder of pictures and nothing else."""
    for part, count in (("train", 10), ("test", 4)):
        for kind, shade in (("dark", 20), ("light", 230)):
            folder = place / "pictures" / part / kind
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("L", (8, 8), shade + number).save(folder / f"{number}.png")
    return place


def test_every_command_is_typed():
    assert {typed.split()[0] for _, typed, _, _ in LIST if typed} >= set(COMMANDS)


@pytest.mark.slow
def test_the_first_hour(desk, program):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    environment.pop("COLUMNS", None)
    for is_warm, typed, code, says in LIST:
        words = shlex.split(typed)
        if is_warm:
            done = program(*words)
            found, out, err = done.code, done.out, done.err
        else:
            command = [sys.executable, "-m", "annealtune", *words]
            cold = subprocess.run(
                command, cwd=desk, env=environment, capture_output=True, text=True, check=False
            )
            found, out, err = cold.returncode, cold.stdout, cold.stderr
        shown = f"annealtune {typed}\n{out}{err}"
        assert found == code, shown
        assert "Traceback" not in shown
        for expected in says:
            assert re.search(expected, out + err), f"{expected!r} is missing\n{shown}"
        if code:
            assert out == "", shown
        if typed.startswith("config"):
            (desk / "my.toml").write_text(out)
    result = json.loads((desk / RUN / "result.json").read_text())
    assert result["test_accuracy"] > 0.5
    assert json.loads((desk / "half" / "result.json").read_text())["epochs"] == 20
    begun = sorted(path.parent.name for path in desk.glob("runs/*/config.toml"))
    assert begun == [Path(RUN).name, f"{Path(RUN).name}-2"]
