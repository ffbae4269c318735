"""What is written is so: code blocks run, quotes equal the source, links lead somewhere."""

import doctest
import importlib
import importlib.util
import pkgutil
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
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


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_a_code_block_runs_alone(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the only content of a file, in an empty folder: nothing before it is taken for granted."""
    monkeypatch.chdir(tmp_path)
    padded = "\n" * (block.line - 1) + block.code  # so that errors name the line of the page
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(compile(padded, block.page, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", QUOTES, ids=str)
def test_a_quote_equals_the_source(block: Block) -> None:
    assert block.code in (ROOT / block.source).read_text(encoding="utf-8")


def test_both_algorithms_are_quoted() -> None:
    sources = {block.source for block in QUOTES if block.page.name == "method.md"}
    assert {
        "src/annealtune/optim/embedded.py",
        "src/annealtune/search/annealer.py",
        "src/annealtune/annealing/acceptance.py",
    } <= sources


def test_links_and_paths_exist() -> None:
    assert {name_of(page): lost for page in PAGES if (lost := missing_from(page))} == {}


def missing_from(page: Path) -> list[str]:
    """The paths and links of a page that lead nowhere."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    missing = [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    for link in LINK.findall(text):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            missing.append(link)
    return missing


def test_the_page_on_adding_names_only_what_exists() -> None:
    text = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
    quoted = set(re.findall(r"`([\w./-]+)`", text))
    paths = {name for name in quoted if "/" in name or name.endswith((".md", ".toml", ".txt"))}
    modules = {name for name in quoted if name.startswith("annealtune.")}
    assert len(paths) > 5
    assert len(modules) > 5
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    assert [name for name in sorted(modules) if importlib.util.find_spec(name) is None] == []


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings, and the site of what it documents."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    names = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    return names | {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    }


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


# --- The examples in docstrings ---


@pytest.mark.parametrize(("room", "least"), [("annealing", 60), ("search", 8), ("optim", 20)])
def test_docstring_examples_run_as_printed(room: str, least: int) -> None:
    package = importlib.import_module(f"annealtune.{room}")
    names = [m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    results = {name: doctest.testmod(importlib.import_module(name)) for name in names}
    assert [name for name, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) >= least


# --- The checks above find what they are there for ---


def test_a_stale_quote_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

            ```python
            print(quote)
            ```
        """)
    )
    quote, example, later = blocks_of(page)
    assert (quote.line, quote.source) == (3, "src/annealtune/errors.py")
    assert (example.line, example.source) == (7, "")
    with pytest.raises(AssertionError):
        test_a_quote_equals_the_source(quote)
    with pytest.raises(ZeroDivisionError):
        test_a_code_block_runs_alone(example, tmp_path, monkeypatch)
    with pytest.raises(NameError):
        test_a_code_block_runs_alone(later, tmp_path, monkeypatch)


def test_a_lost_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](#here) [b](#there) [c](page.md) [d](lost.md) `src/lost.py` "
        "`src/annealtune/errors.py` [e](https://example.org)\n"
    )
    assert missing_from(page) == ["src/lost.py", "#there", "lost.md"]


def test_the_walk_names_files_that_exist_and_ten_at_most() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, walk = text.partition("## A walk through the code\n")
    walk, _, _ = walk.partition("\n## ")
    lists = [re.findall(r"^\d+\. `(.+?)`", part, re.MULTILINE) for part in walk.split("\n**")[1:]]
    assert len(lists) == 5
    for files in lists:
        assert 5 <= len(files) <= 10
        assert [name for name in files if not (ROOT / "src/annealtune" / name).is_file()] == []
