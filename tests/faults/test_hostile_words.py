"""Names, words and messages that were made to harm: spelled out, escaped, of bounded length."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

from annealtune import cli
from annealtune.errors import ConfigError, DataError, RunError, printable
from annealtune.studies.records import read_lone_run, read_study
from annealtune.studies.report.run_page import write_run_report
from annealtune.training.data import image_folder
from annealtune.training.data.download import PublishedFile, fetch

from .seeds import picture_folder

ESCAPE = "\x1b[31mred\x07\x9b2J"


def outcome(monkeypatch, capfd, *words: str) -> tuple[int, str]:
    """Run the program; return its code and all that it wrote."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["annealtune", *words])
    code = cli._run(list(words), debug=False)
    written = capfd.readouterr()
    return code, written.out + written.err


@pytest.mark.parametrize("place", ["before", "after"])
def test_no_message_steers_the_terminal(monkeypatch, capfd, tmp_path, made, place):
    monkeypatch.chdir(tmp_path)
    name = f"{ESCAPE}-run" if place == "before" else f"run-{ESCAPE}"
    shutil.copytree(made / "runs" / "sgd-sa", name)
    shutil.copytree(made / "study", f"study-{ESCAPE}")
    Path(f"skip-{ESCAPE}").mkdir()
    commands = [
        ("inspect", name),
        ("inspect", f"none-{ESCAPE}"),
        ("list", "."),
        ("list", f"study-{ESCAPE}"),
        ("report", name, "--no-figures"),
        ("train", f"none-{ESCAPE}.toml"),
        ("train", "--data", ESCAPE),
        ("train", "--data", "image-folder", "--data-dir", ESCAPE, "--out", name + "-2"),
        ("train", "--set", f"{ESCAPE}=1"),
        ("study", "--methods", ESCAPE),
        ("train", f"--{ESCAPE}"),
        (ESCAPE,),
        ("predict", name, ESCAPE),
    ]
    for words in commands:
        _, text = outcome(monkeypatch, capfd, *words)
        assert text, words
        assert text == printable(text), words
        assert "red" in text, words


def test_names_of_class_folders_are_spelled_out(tmp_path):
    picture_folder(tmp_path / "train", None)
    for name in ("cat", f"dog{ESCAPE}"):
        (tmp_path / "test" / name).mkdir(parents=True)
    with pytest.raises(DataError, match="same classes") as caught:
        image_folder.load(tmp_path)
    assert "\x1b" not in str(caught.value)


def test_class_folders_that_are_not_text_are_refused(tmp_path):
    picture_folder(tmp_path, None)
    os.mkdir(os.fsencode(tmp_path) + b"/b\xff")  # noqa: PTH102 - bytes
    with pytest.raises(DataError, match="must have a name in UTF-8"):
        image_folder.load(tmp_path)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_lacks_a_letter(tmp_path, made, encoding):
    shutil.copytree(made / "runs" / "sgd-sa", tmp_path / "\u65e5")
    done = subprocess.run(
        [sys.executable, "-m", "annealtune", "list", str(tmp_path)],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u65e5" in done.stdout


def test_a_config_steers_no_terminal_and_says_the_same(monkeypatch, capfd):
    name = "x\x9b31m\u202ered"
    code, text = outcome(monkeypatch, capfd, "config", "--data-dir", name)
    assert code == 0
    assert text == printable(text)
    assert tomllib.loads(text)["data_dir"] == name


def test_a_path_of_any_length_gives_a_short_message(monkeypatch, capfd):
    code, text = outcome(monkeypatch, capfd, "inspect", "x" * 100_000)
    assert code != 0
    assert len(text) < 11_000


def test_what_is_left_out_of_a_message_is_counted_once(monkeypatch, capfd):
    code, text = outcome(monkeypatch, capfd, "train", "--model", "x" * 100_000)
    assert code == 2
    assert text.count("letters more") == 1
    assert int(re.search(r"\(([0-9,]+) letters more", text)[1].replace(",", "")) > 80_000


@pytest.mark.parametrize("columns", ["0", "1", "-3", "many"])
def test_a_terminal_of_any_width_shows_something(monkeypatch, capfd, tmp_path, made, columns):
    shutil.copytree(made / "runs" / "sgd-sa", tmp_path / "run")
    monkeypatch.setenv("COLUMNS", columns)
    code, text = outcome(monkeypatch, capfd, "list", str(tmp_path))
    assert code == 0
    assert text.strip()


def test_a_status_line_of_a_server_is_spelled_out(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 500 \x1b[31mred\x07\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        with pytest.raises(DataError, match=r"\\x1b\[31mred\\x07") as caught:
            fetch(PublishedFile("x", "sha256:0", url, 10), tmp_path)
        thread.join()
    assert "\x1b" not in str(caught.value)


def test_a_label_of_a_study_is_spelled_out_and_leads_nowhere(made, tmp_path):
    study = Path(shutil.copytree(made / "study", tmp_path / "study"))
    text = (study / "study.toml").read_text()
    (study / "study.toml").write_text(text.replace('"sgd-sa"', r'"../../\u001b[31m<script>"', 1))
    read = read_study(study)
    assert all(run.path.parent == study / "runs" for run in read.runs)


@pytest.mark.parametrize("seed", [2**63, "9" * 4000])
def test_a_seed_that_is_too_long(made, tmp_path, seed):
    study = Path(shutil.copytree(made / "study", tmp_path / "study"))
    text = (study / "study.toml").read_text()
    (study / "study.toml").write_text(text.replace("    0,\n", f"    {seed},\n", 1))
    with pytest.raises(ConfigError, match="64 bits"):
        read_study(study)


def test_html_in_names_is_text_on_a_page(finished, tmp_path):
    evil = "<img src=x onerror=alert(1)>"
    folder = tmp_path / evil
    shutil.copytree(finished, folder)
    (folder / "seal.json").unlink()  # as a run of an earlier version, so that it can be edited
    shutil.rmtree(folder / "checkpoints")
    config = (folder / "config.toml").read_text().replace("\nseal = 2\n", "\n")
    config = config.replace('method = "sgd-sa"', f'method = "{evil}"')
    (folder / "config.toml").write_text(config.replace('"digits"', f'"{evil}"'))
    page = write_run_report(read_lone_run(folder), tmp_path / "page", figures=False)
    text = page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert "&lt;img" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--out="], "--out: must not be empty"),
        (["train", "--out", ""], "--out: must not be empty"),
        (["inspect", ""], "an argument: must not be empty"),
        (["train", "--out", os.fsdecode(b"a\xff")], r"'a\udcff': must be UTF-8"),
        (["inspect", os.fsdecode(b"a\xff")], r"'a\udcff': must be UTF-8"),
        (["train", "--pad", "4096"], "pad: "),
        (["train", "--model", "x" * 100_000], "letters more"),
        (["train", "--out", "y" * 5000], "name too long"),
        (["inspect", "y" * 5000], "name too long"),
        (["train", "--set", "=" * 5000], "must be KEY=VALUE"),
    ],
)
def test_words_that_are_refused(monkeypatch, capfd, tmp_path, words, message):
    monkeypatch.chdir(tmp_path)
    code, text = outcome(monkeypatch, capfd, *words)
    assert code in (1, 2)
    assert message.lower() in text.lower()
    assert len(text) < 11_000
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_any_length_is_short_and_printable():
    text = str(RunError(f"{ESCAPE}{'x' * 1_000_000}\u202e"))
    assert len(text) < 11_000
    assert text == printable(text)
    with contextlib.suppress(RunError):
        raise RunError("short")
    assert str(RunError("as it is\n\tline")) == "as it is\n\tline"
