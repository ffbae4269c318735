"""What is written is so: code blocks run, quotes equal the source, files that are named exist.

Links between the pages of the site are checked where it is built: tests/test_docs_site.py.
"""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import annealtune

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"<!-- quoted: (\S+) -->\n$")
PRINTED = re.compile(
    r"\s*It prints(?: `([^`\n]+)`|[^\n]*:\n\n```text\n(.*?)^```$)", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s#]+)[^)]*\)")
PATH = re.compile(r"`((?:src|docs|examples|tests|benchmarks|experiments)/[\w./-]+\.\w+)`")


class Block(NamedTuple):
    page: Path
    line: int
    code: str
    source: str  # the file it is quoted from, if it is
    printed: str  # what the page says that it prints, if it does

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        if match[1] == "python":
            quoted = QUOTED.search(text, 0, match.start())
            printed = PRINTED.match(text, match.end())
            line = text.count("\n", 0, match.start()) + 2
            told = (printed[1] or printed[2]) if printed else ""
            found.append(Block(page, line, match[2], quoted[1] if quoted else "", told))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def check_same(made: str, told: str) -> None:
    """The same words, spaces aside, and numbers that differ by no more than those of two CPUs."""
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e-\d+)?")
    words = [re.sub(r"\s+", " ", number.sub("#", text)).strip() for text in (made, told)]
    assert words[0] == words[1]
    numbers = [[float(each) for each in number.findall(text)] for text in (made, told)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.1, abs=1e-3)


@pytest.mark.parametrize("block", [block for block in BLOCKS if not block.source], ids=str)
def test_a_code_block_runs_alone(
    block: Block,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As the only content of a file, in an empty folder: nothing before it is taken for granted."""
    monkeypatch.chdir(tmp_path)
    padded = "\n" * (block.line - 1) + block.code  # so that errors name the line of the page
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(compile(padded, block.page, "exec"), {"__name__": "__main__"})
    if block.printed:
        check_same(capsys.readouterr().out, block.printed)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.source], ids=str)
def test_a_quote_equals_the_source(block: Block) -> None:
    assert block.code in (ROOT / block.source).read_text(encoding="utf-8")


def test_files_that_are_named_exist() -> None:
    missing = []
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        missing += [(page.name, path) for path in PATH.findall(text) if not (ROOT / path).exists()]
        if page.parent == ROOT:  # not on the site
            links = (link for link in LINK.findall(text) if "://" not in link)
            missing += [(page.name, link) for link in links if not (ROOT / link).exists()]
    assert missing == []


def test_docstring_examples_run_as_printed() -> None:
    failed, attempted = [], 0
    rooms = ("annealing", "optim", "search")
    for module in pkgutil.walk_packages(annealtune.__path__, "annealtune."):
        if module.name.split(".")[1] in rooms:
            result = doctest.testmod(importlib.import_module(module.name))
            attempted += result.attempted
            failed += [module.name] if result.failed else []
    assert failed == []
    assert attempted > 60
