"""The shell asks what may come next, by its own protocol, and gets names and directories."""

import doctest
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from annealtune import cli
from annealtune.annealing import STRATEGIES
from annealtune.cli import completion
from annealtune.studies.reproduction import REPRODUCTIONS, experiment_names
from annealtune.training.config import MethodName
from annealtune.training.config.names import ARCHITECTURES, DATASETS

# What has to be imported for an answer, as the last line of standard error.
WATCHED = """
import atexit, sys
from annealtune.cli import main
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
main()
"""


@pytest.fixture
def ask(annealtune, monkeypatch):
    """Asks as bash does for the word at the end of a line, in this process."""

    def ask(line):
        words = line.split(" ")
        monkeypatch.setenv("_ANNEALTUNE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        code, out, err = annealtune()
        assert (code, err) == (0, "")
        return out.split()

    return ask


class TestNames:
    def test_commands(self, ask):
        assert ask("annealtune ") == list(cli.COMMANDS)
        assert ask("annealtune re") == [name for name in cli.COMMANDS if name.startswith("re")]

    def test_flags(self, ask):
        assert ask("annealtune train --res") == ["--resume", "--resume-or-start", "--reshuffle"]
        assert "--version" in ask("annealtune --")

    @pytest.mark.parametrize(
        ("line", "names"),
        [
            ("annealtune train --method ", get_args(MethodName)),
            ("annealtune config --method ", get_args(MethodName)),
            ("annealtune train --data ", DATASETS),
            ("annealtune train --model ", ARCHITECTURES),
            ("annealtune train --strategy ", STRATEGIES),
            ("annealtune train --precision ", ("fp32", "bf16", "fp16")),
            ("annealtune train --device ", ("auto", "cpu", "cuda", "mps")),
            ("annealtune train --accept-batch ", ("same", "next", "held-out")),
            ("annealtune reproduce ", REPRODUCTIONS),
            ("annealtune reproduce --size ", ("small", "regime", "paper")),
            ("annealtune study ", experiment_names()),
            ("annealtune study --engine ", ("local", "ray")),
            ("annealtune study --vary ", ("seed", "init_seed", "data_seed", "decision_seed")),
            ("annealtune train --epochs ", ()),
        ],
    )
    def test_values(self, ask, line, names):
        assert ask(line) == list(names)

    def test_the_beginning_narrows_them(self, ask):
        assert ask("annealtune train --method adamw") == ["adamw-sa", "adamw"]

    def test_lists_with_commas(self, ask):
        assert ask("annealtune study --methods sgd,adamw-") == ["sgd,adamw-sa"]
        assert "sgd,sgd" not in ask("annealtune study --methods sgd,s")

    def test_keys_of_set(self, ask):
        assert "sgd-sa." in ask("annealtune train --set ")
        assert "epochs=" in ask("annealtune train --set e")
        assert ask("annealtune train --set sgd.") == ["sgd.lr="]
        assert ask("annealtune train --set nothing.") == []


class TestDirectories:
    @pytest.fixture(autouse=True)
    def places(self, tmp_path):
        for path in ("runs/a/config.toml", "runs/b/config.toml", "one/config.toml", "x.toml"):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).touch()
        for path in ("studies/s/study.toml", "studies/s/runs/m-seed0/config.toml", "notes/y.txt"):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).touch()

    def test_runs(self, ask):
        assert ask("annealtune inspect ") == ["one", "runs/a", "runs/b", "studies/"]
        assert ask("annealtune evaluate runs/") == ["runs/a", "runs/b"]
        assert ask("annealtune inspect studies/s/runs/m") == ["studies/s/runs/m-seed0"]
        assert ask("annealtune inspect nowhere/") == []

    def test_studies(self):
        assert completion.complete_run_or_study("st") == ["studies/s"]
        assert completion.complete_run_or_study("") == ["one", "runs/a", "runs/b", "studies/s"]

    @pytest.fixture(autouse=True)
    def here(self, places, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

    def test_experiments(self, ask):
        assert ask("annealtune train ") == ["notes/", "one/", "runs/", "studies/", "x.toml"]
        assert ask("annealtune study x") == ["x.toml"]
        assert ask("annealtune study runs/a/") == ["runs/a/config.toml"]


class TestShells:
    """The installed script and the shells themselves."""

    @pytest.fixture
    def environment(self, tmp_path):
        source = str(Path(cli.__file__).parents[2])
        program = tmp_path / "bin" / "annealtune"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\nfrom annealtune.cli import main\nmain()\n")
        program.chmod(0o755)
        path = f"{program.parent}:{os.environ['PATH']}"
        return {**os.environ, "PYTHONPATH": source, "PATH": path, "HOME": str(tmp_path)}

    def test_bash(self, environment, tmp_path):
        """Bash runs the function that it was given for the command."""
        shown = subprocess.run(
            ["bash", "--norc", "-c", "annealtune --show-completion; :"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        (tmp_path / "completion.sh").write_text(shown.stdout)
        script = """
source completion.sh
declare -F _annealtune_completion > /dev/null || exit 3
complete -p annealtune
COMP_WORDS=(annealtune train --method ad) COMP_CWORD=3
_annealtune_completion annealtune
printf '%s\\n' "${COMPREPLY[@]}"
"""
        done = subprocess.run(
            ["bash", "--norc", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        installed, *offered = done.stdout.splitlines()
        assert installed.endswith("-F _annealtune_completion annealtune")
        assert offered == ["adamw-sa", "adamw"]

    def test_bash_is_told_by_one_command(self, environment, tmp_path):
        done = subprocess.run(
            ["bash", "--norc", "-c", "annealtune --install-completion; :"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "bash completion installed" in done.stdout
        script = tmp_path / ".bash_completions" / "annealtune.sh"
        assert "_ANNEALTUNE_COMPLETE=complete_bash" in script.read_text()
        assert f"source '{script}'" in (tmp_path / ".bashrc").read_text()

    def test_zsh(self, annealtune, monkeypatch):
        monkeypatch.setenv("_ANNEALTUNE_COMPLETE", "complete_zsh")
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "annealtune train --strategy t")
        _, out, _ = annealtune()
        assert out == '_arguments \'*: :(("threshold-accepting"\n"tabu"))\'\n'
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "annealtune ins")
        _, out, _ = annealtune()
        assert out == (
            '_arguments \'*: :(("inspect":"Print what a run is and how far it got."))\'\n'
        )
        monkeypatch.setenv("_ANNEALTUNE_COMPLETE", "source_zsh")
        _, out, _ = annealtune()
        assert "compdef _annealtune_completion annealtune" in out

    def test_an_answer_imports_nothing_heavy(self, environment, tmp_path):
        question = {
            "_ANNEALTUNE_COMPLETE": "complete_bash",
            "COMP_WORDS": "annealtune train --method s",
            "COMP_CWORD": "3",
        }
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", WATCHED],
            cwd=tmp_path,
            env={**environment, **question},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "sgd-sa" in done.stdout.split()
        imported = set(done.stderr.splitlines()[-1].split())
        assert not imported & {"torch", "numpy", "scipy", "matplotlib", "annealtune.studies"}


def test_the_examples_run_as_printed():
    assert doctest.testmod(completion) == (0, 3)
