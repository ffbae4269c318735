"""The docs site: builds strictly, leads nowhere wrong, loads nothing from outside."""

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

import pytest
import torch

import annealtune
from annealtune.cli import COMMANDS
from tools.browser import Browser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "NO_MKDOCS_2_WARNING": "1"}

# What a browser fetches without being asked, by tag and attribute. A link to follow is not here.
LOADED = {
    ("script", "src"),
    ("img", "src"),
    ("img", "srcset"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
    ("embed", "src"),
    ("object", "data"),
    ("link", "href"),
    ("image", "href"),
    ("image", "xlink:href"),
    ("use", "href"),
}
OUTSIDE = re.compile(r"(?:https?:)?//", re.IGNORECASE)
# Addresses in the scripts of the theme, and the mark on a page without which they are not asked.
ASKED_FOR_ONLY_BY = {
    "https://unpkg.com/mermaid@11/dist/mermaid.min.js": 'class="mermaid"',
    "https://api.github.com/repos/": 'data-md-component="source"',
    "https://api.github.com/users/": 'data-md-component="source"',
    # For browsers from before 2020.
    "https://unpkg.com/resize-observer-polyfill": None,
    # In comments.
    "https://clipboardjs.com/": None,
    "https://bit.ly/2s3ChXG": None,
    "http://tartarus.org/": None,
}


class Scan(HTMLParser):
    """What a page can be linked at, where it leads and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            if (tag, name) in LOADED:
                self.loaded.append(value)
            if name == "style":
                self.loaded += addresses_of_css(value)
            if (tag, name) in LOADED | {("a", "href")} and name != "srcset":
                self.links.append(value)


def addresses_of_css(text: str) -> list[str]:
    return re.findall(r"""(?:url\(|@import\s+)["']?([^"')\s;]+)""", text)


def outside(addresses: list[str]) -> list[str]:
    return [address for address in addresses if OUTSIDE.match(address)]


def lost(page: str, links: list[str], pages: dict[str, Scan], files: set[str]) -> list[str]:
    """The links of a page of the site that lead to no file or to no anchor of it."""
    missing = []
    for link in links:
        if OUTSIDE.match(link) or link.startswith(("data:", "mailto:", "javascript:")):
            continue
        path, _, anchor = urljoin(f"/{page}", unquote(link)).partition("#")
        path = path.lstrip("/").partition("?")[0]
        if path == "" or path.endswith("/"):
            path += "index.html"
        if path not in files or (path in pages and anchor not in pages[path].anchors):
            missing.append(link)
    return missing


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


class QuietServer(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, on this machine alone."""
    handler = functools.partial(QuietServer, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@functools.cache
def pages_of(site: Path) -> dict[str, Scan]:
    return {
        path.relative_to(site).as_posix(): Scan(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
    }


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = pages_of(site)
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert len(pages) > 40
    found = {}
    for name, page in pages.items():
        if name == "404.html":  # its links start at the root of the server
            continue
        if missing := lost(name, page.links, pages, files):
            found[name] = missing
    assert found == {}


def test_nothing_is_loaded_from_outside(site: Path) -> None:
    found = {name: outside(page.loaded) for name, page in pages_of(site).items()}
    for path in site.rglob("*.css"):
        found[path.name] = outside(addresses_of_css(path.read_text(encoding="utf-8")))
    for name in pages_of(site):
        text = (site / name).read_text(encoding="utf-8")
        styles = re.findall(r"<style[^>]*>(.*?)</style>", text, re.DOTALL)
        found[name] += outside(addresses_of_css("".join(styles)))
    assert {name: addresses for name, addresses in found.items() if addresses} == {}


def test_no_page_makes_the_scripts_ask_outside(site: Path) -> None:
    # lunr, which stems words, has addresses in its comments.
    paths = [path for path in site.rglob("*.js") if "lunr" not in path.parts]
    assert len(paths) >= 2
    scripts = "".join(path.read_text(encoding="utf-8") for path in paths)
    addresses = set(re.findall(r"https?://[\w.-]+\.\w+/[\w./@-]*", scripts))
    assert {a for a in addresses if "w3.org" not in a} <= ASKED_FOR_ONLY_BY.keys()
    marks = {mark for mark in ASKED_FOR_ONLY_BY.values() if mark}
    for name in pages_of(site):
        text = (site / name).read_text(encoding="utf-8")
        assert [mark for mark in marks if mark in text] == [], name


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    anchors = {
        anchor
        for name, page in pages_of(site).items()
        if name.startswith("reference/")
        for anchor in page.anchors
    }
    missing = [name for name in annealtune.__all__ if f"annealtune.{name}" not in anchors]
    assert missing == []


def test_every_command_is_on_the_page_of_the_program(site: Path) -> None:
    text = (site / "program" / "index.html").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"Usage: annealtune {name} " not in text] == []


def test_the_results_are_published_as_they_are(site: Path) -> None:
    results = sorted((DOCS / "results").rglob("*.html"))
    assert DOCS / "results" / "quality.html" in results
    for path in results:
        assert (site / path.relative_to(DOCS)).read_bytes() == path.read_bytes()


def test_drawings_follow_the_toggle(site: Path) -> None:
    """They are part of the page and have no colours of their own; an image could not see it."""
    text = (site / "how-it-works" / "index.html").read_text(encoding="utf-8")
    drawings = re.findall(r'<svg[^>]*class="drawn".*?</svg>', text, re.DOTALL)
    assert len(drawings) == 4
    assert "<img" not in text
    used = set(re.findall(r"var\(--(\w+)\)", "".join(drawings)))
    assert len(used) > 4
    assert "<style" not in "".join(drawings)
    style = (DOCS / "site" / "style.css").read_text(encoding="utf-8")
    for scheme in ("default", "slate"):
        [colours] = re.findall(rf'\[data-md-color-scheme="{scheme}"\] {{(.*?)}}', style, re.DOTALL)
        assert [name for name in sorted(used) if f"--{name}: #" not in colours] == []


def test_no_formula_is_left_as_latex(site: Path) -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in (site / "reference").rglob("*.html"))
    assert text.count('class="formula"') > 10
    assert re.findall(r"math:|\\(?:cdot|frac|quad|min|le|alpha)|\^\{", text) == []


# --- What the pages are made of ---


def outline(text: str) -> str:
    """A text without its numbers and the spaces that depend on them."""
    return re.sub(r"\s+", " ", re.sub(r"-?\d[\d.]*(e-\d+)?", "#", text))


def test_what_a_page_says_is_printed_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    block = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    start = (DOCS / "start.md").read_text(encoding="utf-8")
    (_, code), (_, shown) = block.findall(start)
    with torch.random.fork_rng():
        exec(code, {})
    assert outline(capsys.readouterr().out) == outline(shown)
    home = (DOCS / "index.md").read_text(encoding="utf-8")
    [(_, code)] = block.findall(home)
    [shown, steps] = re.search(r"It prints `(.+?)`.*?and\s+made (\d+)", home, re.DOTALL).groups()
    namespace: dict[str, Any] = {}
    with torch.random.fork_rng():
        exec(code, namespace)
    printed = capsys.readouterr().out.strip()
    assert outline(printed) == outline(shown)
    (rate, accuracy), (shown_rate, shown_accuracy) = (
        map(float, re.findall(r"[\d.]+\d", text)) for text in (printed, shown)
    )
    assert rate == shown_rate
    assert accuracy == pytest.approx(shown_accuracy, abs=1.5)  # six images of 397
    assert namespace["opt"].extra_steps == int(steps)


@pytest.mark.slow
def test_the_tutorial_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    shown = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
    copy = tmp_path / "tutorial.ipynb"
    cleared = [cell | {"outputs": []} if "outputs" in cell else cell for cell in shown["cells"]]
    copy.write_text(json.dumps(shown | {"cells": cleared}), encoding="utf-8")
    subprocess.run(
        [sys.executable, "-W", "error", DOCS / "site" / "run_notebook.py", copy],
        cwd=tmp_path,
        env=os.environ | ENVIRONMENT,
        timeout=240,
        check=True,
    )
    made, kept = (
        [
            "".join(text)
            for cell in notebook["cells"]
            for output in cell.get("outputs", [])
            for text in output["text"]
        ]
        for notebook in (json.loads(copy.read_text(encoding="utf-8")), shown)
    )
    assert list(map(outline, made)) == list(map(outline, kept))
    printed = "".join(made)
    by_hand = [float(a) for a in re.findall(r"learning rate \S+: test accuracy (\S+)%", printed)]
    [tuned] = re.findall(r"test accuracy (\S+)%, \d+ extra steps", printed)
    assert len(by_hand) == 3
    assert float(tuned) > 95
    assert float(tuned) > max(by_hand)
    assert "in a race: True" in printed
    assert "bit for bit: True" in printed


@pytest.mark.slow
def test_the_drawings_are_those_that_the_command_makes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, DOCS / "pictures" / "draw.py", tmp_path],
        env=os.environ | ENVIRONMENT,
        timeout=240,
        check=True,
    )
    drawn = sorted(tmp_path.glob("*.svg"))
    assert [path.stem for path in drawn] == ["accept", "race", "rate", "stretches"]
    for path in drawn:
        made = path.read_text(encoding="utf-8")
        kept = (DOCS / "pictures" / path.name).read_text(encoding="utf-8")
        words = re.compile(r">([^<]+)</text>")
        assert [outline(t) for t in words.findall(made)] == [
            outline(t) for t in words.findall(kept)
        ]
        if path.stem != "accept":  # where one bit decides whether a step is kept
            assert re.sub(r"[\d.]+", "#", made) == re.sub(r"[\d.]+", "#", kept)


# --- The checks above find what they are there for ---


def test_a_lost_link_is_found() -> None:
    pages = {"a/index.html": Scan('<h1 id="here">'), "index.html": Scan("")}
    links = ["#here", "#there", "..", "../b/", "../a/#here", "https://example.org", "x.png"]
    assert lost("a/index.html", links, pages, set(pages)) == ["#there", "../b/", "x.png"]


def test_what_a_page_loads_is_found() -> None:
    page = Scan(
        '<link href="https://fonts.example/css"><script src="//cdn.example/x.js"></script>'
        '<a href="https://example.org">followed</a><img src="here.png">'
        '<p style="background: url(https://example.org/x.png)">'
    )
    assert outside(page.loaded) == [
        "https://fonts.example/css",
        "//cdn.example/x.js",
        "https://example.org/x.png",
    ]
    assert addresses_of_css("@import 'https://x.example/a.css'; b { src: url('c.woff') }") == [
        "https://x.example/a.css",
        "c.woff",
    ]


def check_as_a_reader(browser: Browser, address: str, name: str) -> None:
    """Wide and narrow, light and dark: no complaint, no request elsewhere, nothing sticks out."""
    for width in (1280, 390):
        for scheme in ("light", "dark"):
            browser.open(f"{address}{name.removesuffix('index.html')}", width, scheme)
            elsewhere = [each for each in browser.requests if not each.startswith(address)]
            assert (browser.errors, elsewhere) == ([], []), (name, width, scheme)
            assert browser.size()[0] == width, (name, width, scheme)


@pytest.mark.parametrize("name", ["index.html", "frameworks/index.html", "tutorial/index.html"])
def test_a_reader_sees_a_whole_page(browser: Browser, address: str, name: str) -> None:
    check_as_a_reader(browser, address, name)


@pytest.mark.slow
def test_a_reader_sees_every_page(browser: Browser, address: str, site: Path) -> None:
    for name in pages_of(site):
        if not name.startswith(("results/", "404")) or name.endswith("quality/index.html"):
            check_as_a_reader(browser, address, name)
