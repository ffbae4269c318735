"""What is written is so: code blocks run, quotes equal the source, links lead somewhere."""

import doctest
import importlib
import re
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"<!-- quoted: (\S+) -->\n$")
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:src|docs|examples|tests|benchmarks|experiments)/[\w./-]+\.\w+)`")


class Block(NamedTuple):
    page: Path
    line: int
    code: str
    source: str  # the file it is quoted from, if it is

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        if match[1] == "python":
            quoted = QUOTED.search(text, 0, match.start())
            line = text.count("\n", 0, match.start()) + 2
            found.append(Block(page, line, match[2], quoted[1] if quoted else ""))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
QUOTES = [block for block in BLOCKS if block.source]
EXAMPLES = [block for block in BLOCKS if not block.source]


def given() -> dict[str, Any]:
    """What the text around the blocks takes for granted: a model, a loss and a loader."""
    torch.manual_seed(0)
    return {
        "torch": torch,
        "nn": nn,
        "model": nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10)),
        "loss_fn": nn.CrossEntropyLoss(),
        "loader": [(torch.randn(16, 64), torch.randint(10, (16,))) for _ in range(4)],
    }


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_a_code_block_runs(block: Block) -> None:
    padded = "\n" * (block.line - 1) + block.code  # so that errors name the line of the page
    exec(compile(padded, block.page, "exec"), given())


@pytest.mark.parametrize("block", QUOTES, ids=str)
def test_a_quote_equals_the_source(block: Block) -> None:
    assert block.code in (ROOT / block.source).read_text(encoding="utf-8")


def test_the_readme_starts_with_code_that_needs_nothing_else() -> None:
    first = next(block for block in EXAMPLES if block.page.name == "README.md")
    exec(compile(first.code, first.page, "exec"), {})


def test_both_algorithms_are_quoted() -> None:
    sources = {block.source for block in QUOTES if block.page.name == "method.md"}
    assert {
        "src/annealtune/optim/embedded.py",
        "src/annealtune/search/annealer.py",
        "src/annealtune/annealing/acceptance.py",
    } <= sources


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_paths_exist(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    missing = [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    for link in LINK.findall(text):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            missing.append(link)
    assert missing == []


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


# --- The examples in docstrings ---

OPTIM = sorted((ROOT / "src" / "annealtune" / "optim").glob("*.py"))


@pytest.mark.parametrize("path", OPTIM, ids=lambda path: path.stem)
def test_docstring_examples(path: Path) -> None:
    name = "annealtune.optim" + ("" if path.stem == "__init__" else f".{path.stem}")
    assert doctest.testmod(importlib.import_module(name)).failed == 0


# --- The checks above find what they are there for ---


def test_a_stale_quote_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        textwrap.dedent("""\
            <!-- quoted: src/annealtune/errors.py -->
            ```python
            class NoSuchError(Exception):
            ```

            ```python
            1 / 0
            ```
        """)
    )
    quote, example = blocks_of(page)
    assert (quote.line, quote.source) == (3, "src/annealtune/errors.py")
    assert (example.line, example.source) == (7, "")
    with pytest.raises(AssertionError):
        test_a_quote_equals_the_source(quote)
    with pytest.raises(ZeroDivisionError):
        test_a_code_block_runs(example)
