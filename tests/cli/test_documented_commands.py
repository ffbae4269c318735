"""Every command line in README and docs has words that the program knows."""

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from annealtune import cli
from annealtune.studies.plan import BUILT_IN
from annealtune.training.config import MethodName

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# At the beginning of a line of code, or between backticks.
TYPED = re.compile(r"^(?: {4}|\$ )?annealtune ([^\n`]+)$|`annealtune ([^`]+)`", re.MULTILINE)


def lines_of(page):
    for match in TYPED.finditer(page.read_text(encoding="utf-8")):
        text = re.sub(r"\s+", " ", match[1] or match[2]).partition("  #")[0].partition(" # ")[0]
        yield text.strip()


LINES = [(page.name, line) for page in PAGES for line in lines_of(page)]


def test_there_are_some():
    assert len(LINES) > 10


@pytest.mark.parametrize(("page", "line"), LINES, ids=lambda part: part[:60])
def test_command_flags_and_methods_exist(page, line):
    words = [word for word in shlex.split(line.replace("'", '"')) if word != "..."]
    group = cli.program()
    known = {"--help", "--debug"}
    command = group if words[0].startswith("-") else group.get_command(None, words[0])
    assert command is not None, (page, line)
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--"):
            assert word.partition("=")[0] in known, (page, line)
        if word == "--method" and after != "NAME":
            assert after in get_args(MethodName), (page, line)
        if word == "--methods":
            assert set(after.split(",")) <= set(BUILT_IN), (page, line)
