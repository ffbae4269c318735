"""Before a run begins: a line on a terminal, none elsewhere, and a word at any signal."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
FLAGS = ("train", "--model", "mlp-w8", "--train-size", "100", "--threads", "1")
STARTING = b"annealtune: starting ..."
LOADING = b"annealtune: loading torch and digits ..."


class Terminal:
    """The program on a terminal of 80 columns, from nothing."""

    def __init__(self, directory, *words):
        environment = {
            **{name: value for name, value in os.environ.items() if name != "COLUMNS"},
            "PYTHONPATH": str(SOURCE),
            "TERM": "xterm",
            "OMP_NUM_THREADS": "1",
        }
        self.pid, self._screen = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            command = [sys.executable, "-m", "annealtune", *map(str, words)]
            os.execve(sys.executable, command, environment)
        self.text = b""

    def read_until(self, words=None):
        """Read until the words are there, or to the end; return whether they are."""
        while words is None or words not in self.text:
            ready, _, _ = select.select([self._screen], [], [], 120)
            assert ready, self.text
            try:
                more = os.read(self._screen, 65536)
            except OSError:  # the other side is closed
                more = b""
            if not more:
                return False
            self.text += more
        return True

    def end(self):
        self.read_until()
        os.close(self._screen)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def screen(self):
        """What a person sees in the end: lines, erased ones left out."""
        lines = []
        for line in self.text.decode().replace("\r\n", "\n").split("\n"):
            shown = line.rpartition("\x1b[2K")[2].rpartition("\r")[2]
            lines.append(shown.replace("\x1b[?25h", "").replace("\x1b[?25l", ""))
        return lines


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("after", [0.0, 0.2, 0.8])
def test_a_signal_while_it_starts_is_answered_in_a_line(tmp_path, number, after):
    terminal = Terminal(tmp_path, *FLAGS)
    assert terminal.read_until(STARTING)
    time.sleep(after)
    os.kill(terminal.pid, number)
    assert terminal.end() == CODES[number]
    told = f"annealtune: {number.name}: stopped before the run began; nothing was written"
    assert terminal.screen() == [told, ""]
    assert list(tmp_path.iterdir()) == []


def test_a_signal_before_it_can_answer_leaves_no_traceback(tmp_path):
    code = "import annealtune.__main__, signal; signal.raise_signal(signal.SIGINT); print('on')"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_ctrl_c_while_torch_is_loaded(tmp_path):
    terminal = Terminal(tmp_path, *FLAGS)
    assert terminal.read_until(LOADING)
    os.write(terminal._screen, b"\x03")  # as the key does
    assert terminal.end() == 130
    told = "annealtune: SIGINT: stopped before the run began; nothing was written"
    assert terminal.screen() == [told, ""]
    assert list(tmp_path.iterdir()) == []


def test_in_a_pipe_the_same_words_and_no_line(tmp_path):
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from annealtune.cli import main; print(flush=True); main()",
            *FLAGS,
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert (process.returncode, out) == (143, "")
    assert err == "annealtune: SIGTERM: stopped before the run began; nothing was written\n"


def test_the_line_gives_way_to_the_bars(tmp_path):
    terminal = Terminal(tmp_path, *FLAGS, "--epochs", "1", "--out", "run")
    assert terminal.end() == 0
    assert terminal.text.startswith(b"\x1b[2K" + STARTING + b"\r\x1b[2K" + LOADING + b"\r\x1b[2K")
    seen = "\n".join(terminal.screen())
    assert "loading" not in seen
    assert "starting" not in seen
    assert "weights: run/best.safetensors" in seen


@pytest.mark.parametrize("words", [["--epocs", "3"], ["--method", "sgdsa"], ["--resume"]])
def test_the_line_gives_way_to_an_error(tmp_path, words):
    terminal = Terminal(tmp_path, "train", *words)
    assert terminal.end() == 2
    assert terminal.screen()[0].startswith("annealtune: ")
    assert "starting" not in "\n".join(terminal.screen())


def test_help_is_not_preceded_by_a_line(tmp_path):
    terminal = Terminal(tmp_path, "train", "--help")
    assert terminal.end() == 0
    assert terminal.text.startswith(b"Usage: annealtune train")
