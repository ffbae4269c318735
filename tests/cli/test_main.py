"""The program as a whole: help for all, an exit code, nothing imported that is not needed."""

import importlib.util
import os
import platform
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from annealtune import __version__, cli
from annealtune.errors import ConfigError

SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize("columns", ["80", "40"])
@pytest.mark.parametrize("words", [["--help"], []])
def test_the_help_lists_every_command(annealtune, monkeypatch, words, columns):
    monkeypatch.setenv("COLUMNS", columns)
    code, out, _ = annealtune(*words)
    assert code == 0
    assert re.findall(r"^  ([a-z]+)  ", out.partition("Commands:")[2], re.MULTILINE) == [
        *cli.COMMANDS
    ]


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_a_help(annealtune, command):
    code, out, _ = annealtune(command, "--help")
    assert code == 0
    assert out.startswith(f"Usage: annealtune {command} [OPTIONS]")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["trian"], "'train'"),
        (["train", "--epocs", "3"], "--epochs"),
    ],
)
def test_wrong_words(refused, words, told):
    assert told in refused(*words)


@pytest.mark.parametrize("words", [["--version"], ["-V"], ["--version", "train"]])
def test_the_versions(annealtune, words):
    code, out, _ = annealtune(*words)
    assert code == 0
    found = re.fullmatch(r"annealtune (\S+), torch (\S+), Python (\S+)\n", out)
    assert found.groups() == (__version__, torch.__version__, platform.python_version())


def test_a_traceback_on_request(annealtune, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["annealtune", "train", "--epochs", "0", "--debug"])
    with pytest.raises(ConfigError):
        cli.main()


def test_without_the_extra_it_says_what_to_install(annealtune, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert annealtune("--version")[0] == 0
    code, _, err = annealtune("--help")
    assert code == 2
    assert "pip install 'annealtune[train]'" in err


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
        (["reproduce"], 0),
        (["train", "--help"], 0),
        (["config"], 0),
        (["train", "--resume"], 2),
        (["train", "--epochs", "0"], 2),
        (["train", "--model", "vgg17"], 2),
        (["train", "missing.toml"], 2),
        (["evaluate", "missing"], 2),
        (["study", "--seeds", "x"], 2),
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
    if arguments[0] in ("train", "config", "evaluate"):
        assert not [name for name in imported if name.startswith("annealtune.studies")]


def test_python_m_annealtune(run_cold):
    done = run_cold(sys.executable, "-m", "annealtune", "config", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert "epochs = 3" in done.stdout


# --- Signals, a terminal ---


FLAGS = ("train", "--model", "mlp-w8", "--train-size", "100", "--threads", "1", "--out", "run")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_starts_ends_it(tmp_path, number):
    program = "from annealtune.cli import main; print(flush=True); main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, *FLAGS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests may be in the background, where Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(number)
    out, err = process.communicate()
    code = 130 if number == signal.SIGINT else -signal.SIGTERM
    assert (process.returncode, out) == (code, "")
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_the_background_with_sigint_ignored_saves_and_leaves(tmp_path):
    """As `nohup annealtune train &` in a script starts it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "annealtune", *FLAGS, "--epochs", "100000"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.terminate()
    _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "SIGTERM: saved run" in err.splitlines()[-1]


def test_on_a_terminal(tmp_path):
    pid, screen = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        command = [sys.executable, "-m", "annealtune", *FLAGS, "--epochs", "2"]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm", "COLUMNS": "40"}
        os.execve(sys.executable, command, environment)
    text = b""
    while select.select([screen], [], [], 120)[0]:
        try:
            text += os.read(screen, 65536)
        except OSError:  # the other side is closed
            break
    os.close(screen)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, text
    assert b"loading torch" in text
    assert b"epoch 2" in text
    assert b"weights: run/best.safetensors" in text
