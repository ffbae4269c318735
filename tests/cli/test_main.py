"""The program as a whole: help for all, an exit code, nothing imported that is not needed."""

import importlib.util
import platform
import re
import sys

import pytest
import torch

from annealtune import __version__, cli
from annealtune.errors import ConfigError


def test_the_help_lists_every_command_with_all_of_its_line(annealtune, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = annealtune("--help")
    assert code == 0
    assert "--debug" in out
    assert "train Train one model and keep its best weights. config" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    for name, home in cli.COMMANDS.items():
        line = cli._commands_of(home)[name].help.splitlines()[0]
        assert f"{name} {line}" in words


def test_every_command_is_found_in_its_file(annealtune):
    for command in cli.COMMANDS:
        code, out, _ = annealtune(command, "--help")
        assert (code, f" {command} [OPTIONS]" in out) == (0, True)
    for file in set(cli.COMMANDS.values()):
        named = {name for name, home in cli.COMMANDS.items() if home == file}
        assert set(cli._commands_of(file)) == named


def test_a_command_with_a_typo(annealtune):
    code, out, err = annealtune("trian")
    assert (code, out) == (2, "")
    assert err.startswith("annealtune: 'trian' is not a command; did you mean 'train'? Commands: ")


def test_a_command_like_no_other(annealtune):
    _, _, err = annealtune("zzz")
    assert err.startswith("annealtune: 'zzz' is not a command; commands: train, config, ")


def test_a_word_too_many(annealtune):
    code, _, err = annealtune("inspect", "here", "there")
    assert code == 2
    first, second = err.splitlines()
    assert "there" in first
    assert second == "annealtune inspect --help explains the options"


def test_without_arguments(annealtune):
    code, out, err = annealtune()
    assert (code, err) == (0, "")
    assert out.startswith("Usage: annealtune [OPTIONS] COMMAND")


@pytest.mark.parametrize("words", [["--version"], ["-V"], ["--version", "train"]])
def test_the_versions(annealtune, words):
    code, out, _ = annealtune(*words)
    assert code == 0
    found = re.fullmatch(r"annealtune (\S+), torch (\S+), Python (\S+)\n", out)
    assert found.groups() == (__version__, torch.__version__, platform.python_version())


def test_the_version_without_what_the_program_needs(annealtune, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    code, out, _ = annealtune("--version")
    assert (code, out.split(",")[0]) == (0, f"annealtune {__version__}")


def test_a_traceback_on_request(annealtune, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["annealtune", "train", "--epochs", "0", "--debug"])
    with pytest.raises(ConfigError):
        cli.main()


# --- From nothing ---


HEAVY = {"torch", "numpy", "scipy", "sklearn", "safetensors", "matplotlib"}

# Ends as the program does and names, as its last line, what was imported on the way.
WATCHED = """
import atexit, sys
from annealtune.cli import main
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
main()
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["list"], 0),
        (["train", "--resume"], 2),
        (["train", "--method", "sgd-sa", "--help"], 0),
        (["train", "--help"], 0),
        (["config"], 0),
        (["train", "--epocs", "3"], 2),
        (["train", "--epochs", "0"], 2),
        (["train", "--model", "vgg17"], 2),
        (["train", "missing.toml"], 2),
        (["inspect", "missing"], 2),
        (["evaluate", "missing"], 2),
        (["unknown"], 2),
    ],
)
def test_help_and_usage_errors_import_nothing_heavy(run_cold, tmp_path, arguments, code):
    done = run_cold(sys.executable, "-W", "error", "-c", WATCHED, *arguments)
    assert done.returncode == code, done.stderr
    imported = set(done.stderr.splitlines()[-1].split())
    assert "annealtune" in imported
    assert imported & HEAVY == set()
    assert list(tmp_path.iterdir()) == []
    if arguments[0] in ("train", "config", "inspect", "evaluate"):
        assert not [name for name in imported if name.startswith("annealtune.studies")]


def test_python_m_annealtune(run_cold):
    done = run_cold(sys.executable, "-m", "annealtune", "config", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert "epochs = 3" in done.stdout


def test_without_what_it_needs_it_says_what_to_install(annealtune, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "typer" else real(name)
    )
    code, _, err = annealtune("--help")
    assert code == 2
    assert err == "annealtune: typer missing: pip install 'annealtune[train]'\n"
