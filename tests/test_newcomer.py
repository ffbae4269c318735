"""The newcomer's list: what a new user types in the first hour, in order, and what must appear.

Each line is typed in the same directory, after those above it. Lines that only have to be quick run
as the installed script does, from nothing; those that need torch in a process that has it already.
"""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from annealtune import __version__
from annealtune.cli import COMMANDS

SOURCE = Path(__file__).parents[1] / "src"
SCRIPT = Path(sys.executable).with_name("annealtune")
RUN = "runs/digits-mlp-w4-self-tuned-seed0"
# A run that is short and long enough for a race.
QUICK = "--model mlp-w4 --train-size 600 --epochs 20"


@dataclasses.dataclass(frozen=True)
class Line:
    """One line that is typed.

    Attributes:
        typed: without the word annealtune.
        says: what must be in its output, as regular expressions.
        leaves: files that must be there afterwards.
        code: its exit code.
        warm: whether it needs torch.
        never: what must not be in its output.
        into: the file that its output is sent to.
    """

    typed: str
    says: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    code: int = 0
    warm: bool = False
    never: str = "Traceback"
    into: str | None = None


LIST = (
    # Is it there, and what can it do?
    Line("--version", (rf"^annealtune {re.escape(__version__)}, torch \S+, Python 3\.\d+",)),
    Line("", ("Usage: annealtune", *(rf"\n  {name} +\w" for name in COMMANDS))),
    Line("trian", (r"'trian' is not a command; did you mean 'train'\?",), code=2),
    Line("train --help", ("--epochs N", "Options of self-tuned", "--help --method NAME shows")),
    # The first run: it finds its rate, and says where the weights are.
    Line(
        f"train {QUICK}",
        ("starting: self-tuned", "race .*won", r"epoch 20/20", r"test accuracy \d\d", "weights: "),
        (f"{RUN}/best.safetensors", f"{RUN}/result.json", f"{RUN}/metrics.jsonl"),
        warm=True,
    ),
    Line("list", (rf"{RUN} .*20/20 +finished +\S+ +\d\d\.\d% +\d\d\.\d%",)),
    Line(f"inspect {RUN}", ("state +finished", "rate", "race", "test +accuracy"), warm=True),
    Line(f"evaluate {RUN}", (r"test accuracy \d\d",), warm=True),
    # Again: a new directory, never over the old one; or go on, where there is something to go on.
    Line(f"train {QUICK} --epochs 1", (f"weights: {RUN}-2/best",), (f"{RUN}-2",), warm=True),
    Line(f"train --out {RUN} --resume", ("test accuracy", "best epoch"), warm=True),
    Line(f"train {QUICK} --out {RUN}", ("holds a run already; .* --resume",), code=2, warm=True),
    Line("train --resume --out runs/nowhere", ("there is no run in runs/nowhere",), code=2),
    Line(
        f"train {QUICK} --method adamw --stop-after 2 --out half",
        ("far enough: saved half at step", "2 of 20 epochs", "--out half --resume"),
        warm=True,
    ),
    Line("train --out half --resume", ("continuing at step", "weights: half/best"), warm=True),
    # Words that are nearly right.
    Line("train --epoch 3", (r"no such option: --epoch; did you mean '--epochs'\?",), code=2),
    Line("train --method adam", (r"did you mean 'adamw'\?",), code=2),
    Line("train --data cifar", (r"did you mean 'cifar10'\?",), code=2),
    Line("train adamw", (r"did you mean --method adamw\?",), code=2),
    Line("train --data cifar10", ("cifar10", "--download"), code=1, warm=True),
    # Another method, and its options.
    Line(
        "train --method adamw-sa --help",
        ("Options of adamw-sa", r"lr +learning rates in H  \[default: 0.0001 ... 0.01\]"),
        never="Options of self-tuned",
    ),
    # The settings in a file.
    Line("config --model mlp-w4 --train-size 200", ('method = "self-tuned"',), into="my.toml"),
    Line(
        "train my.toml --method sgd-sa --strategy tabu --epochs 1 --out tabu",
        ("starting: sgd-sa", "accepted", "weights: tabu/best.safetensors"),
        ("tabu/moves.jsonl",),
        warm=True,
    ),
    # Pictures of one's own.
    Line(
        "train --data image-folder --data-dir pictures --model mlp-w4 --epochs 1 --out mine",
        ("weights: mine/best.safetensors",),
        warm=True,
    ),
    # Several methods and seeds, and the page about them.
    Line("study dmo", (r"did you mean 'demo'\?",), code=2),
    Line(
        "study my.toml --methods adamw,self-tuned --seeds 0-1 --epochs 2 --jobs 2",
        ("studies/my: 4 finished", "next: annealtune report studies/my"),
        ("studies/my/study.toml", "studies/my/runs/adamw-seed1/result.json"),
        warm=True,
    ),
    Line("report studies/my", (r"studies/my/report/\S+\.html",), warm=True),
    Line(
        "list studies/my --json",
        (
            '"method": "adamw"',
            '"test_accuracy": 0',
        ),
    ),
    # The paper.
    Line("reproduce", ("table-1", "figure-1", "what it shows")),
    Line(
        "reproduce figure-9", ("unknown; known: table-1, figure-1",), code=2, never="did you mean"
    ),
)

# Commands that may not be there yet: each is switched on by the file that brings it.
REPORT_OF_A_RUN = (Line(f"report {RUN}", (), (f"{RUN}/report/index.html",), warm=True),)
OF_A_MODEL = (
    Line(f"predict {RUN} images.npy", ("3 predictions",), ("predictions.csv",), warm=True),
    Line(f"export {RUN}", (), (f"{RUN}/export",), warm=True),
)
WHOLE_LIST = (
    *LIST,
    *(REPORT_OF_A_RUN if COMMANDS["report"] == "report" else ()),
    *(OF_A_MODEL if "predict" in COMMANDS else ()),
)


class Desk:
    """Where the lines are typed, one after the other."""

    def __init__(self, directory, ask, setup):
        self.directory = directory
        self._ask = ask
        self._setup = setup

    def type(self, line: Line) -> SimpleNamespace:
        words = shlex.split(line.typed)
        done = self._run_warm(words) if line.warm else self._run(words)
        if line.into is not None:
            (self.directory / line.into).write_text(done.out)
        return done

    def _run(self, words):
        installed = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "annealtune"]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        environment.pop("COLUMNS", None)
        done = subprocess.run(
            [*installed, *words],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)

    def _run_warm(self, words):
        files = {name: str(self.directory / f".{name}") for name in ("stdout", "stderr")}
        place = {"setup": self._setup, "directory": str(self.directory)}
        child = self._ask({"arguments": words, **place, **files})
        code = self._ask({"wait": child})
        out, err = (Path(file).read_text() for file in files.values())
        return SimpleNamespace(code=code, out=out, err=err)


@pytest.fixture
def desk(_warm_program, fork_runs):
    """A directory with a folder of pictures and a file of images, and nothing else."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        directory = Path(path)
        for part, count in (("train", 10), ("test", 4)):
            for kind, shade in (("dark", 20), ("light", 230)):
                folder = directory / "pictures" / part / kind
                folder.mkdir(parents=True)
                for number in range(count):
                    image = Image.new("L", (8, 8), shade + number)
                    image.save(folder / f"{number}.png")
        np.save(directory / "images.npy", np.zeros((3, 1, 8, 8), dtype=np.uint8))
        yield Desk(directory, _warm_program, fork_runs)


def test_there_are_twenty_or_more():
    assert len(LIST) >= 20
    typed = {line.typed.split()[0] for line in LIST if line.typed}
    assert typed >= {name for name in COMMANDS if name not in ("predict", "export")}


@pytest.mark.slow
def test_the_first_hour(desk):
    hour = {}
    for line in WHOLE_LIST:
        hour[line.typed] = done = desk.type(line)
        shown = f"annealtune {line.typed}\n{done.out}{done.err}"
        assert done.code == line.code, shown
        for words in line.says:
            assert re.search(words, done.out + done.err), f"{words!r} is missing\n{shown}"
        assert line.never not in shown.partition("\n")[2], shown
        for name in line.leaves:
            assert (desk.directory / name).exists(), f"{name} is missing\n{shown}"
        if line.code:
            assert done.out == "", shown
            assert len(done.err.splitlines()) <= 2, shown
    check_that_the_answers_agree(desk.directory, hour)


def check_that_the_answers_agree(directory, hour):
    result = json.loads((directory / RUN / "result.json").read_text())
    accuracy = f"test accuracy {result['test_accuracy']:.2%}"
    for line in (f"train {QUICK}", f"evaluate {RUN}", f"train --out {RUN} --resume"):
        assert accuracy in hour[line].out
    assert f"{result['test_accuracy']:.1%}" in hour["list"].out
    assert " 6e-3 " in hour["list"].out
    assert result["test_accuracy"] > 0.5
    written = tomllib.loads((directory / "my.toml").read_text())
    assert (written["model"], written["train_size"]) == ("mlp-w4", 200)
    assert json.loads((directory / "half" / "result.json").read_text())["epochs"] == 20
    assert not (directory / "runs" / "nowhere").exists()
    begun = sorted(path.parent.name for path in directory.glob("runs/*/config.toml"))
    assert begun == [Path(RUN).name, f"{Path(RUN).name}-2"]
