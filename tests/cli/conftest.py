"""The program in this process, and from nothing in another one."""

import os
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest

from annealtune import cli

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def annealtune(tmp_path, monkeypatch, capsys):
    """Runs the program in this process and in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def annealtune(*arguments):
        monkeypatch.setattr(sys, "argv", ["annealtune", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capsys.readouterr()
        return left.value.code or 0, out, err

    return annealtune


@pytest.fixture
def refused(annealtune):
    """Runs the program, expects an exit code and a message, returns the message."""

    def refused(*arguments, code=2):
        found, out, err = annealtune(*arguments)
        assert found == code, err
        assert out == ""
        assert "Traceback" not in err
        return err.removeprefix("annealtune: ")

    return refused


@pytest.fixture
def run_cold(tmp_path):
    """Runs a command in a new process, in ``tmp_path``."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}

    def run_cold(*command):
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run_cold


@pytest.fixture
def opened(monkeypatch):
    """The addresses that the browser was asked to open."""
    addresses = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not addresses.append(address))
    return addresses
