"""The docs site: builds strictly, loads nothing from outside, can be read on any screen."""

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import annealtune
from tests.test_documentation import check_same
from tools.browser import Browser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = "results/pages"
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "NO_MKDOCS_2_WARNING": "1"}
# What a browser fetches without being asked.
LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|embed|link|image|use)\b[^>]*?"
    r'\b(?:src|srcset|href|xlink:href)="((?:https?:)?//[^"]+)"'
    r"|(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')\s;]+)",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; a link or an anchor that leads nowhere is a warning, and so an error.

    While it is built, tables are filled from the records: the committed ones must be the same.
    """
    folder = tmp_path_factory.mktemp("site")
    texts = {path: path.read_text(encoding="utf-8") for path in (DOCS / "results").glob("*.md")}
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
    filled = {path: path.read_text(encoding="utf-8") for path in texts}
    for path in (path for path in texts if filled[path] != texts[path]):
        path.write_text(texts[path], encoding="utf-8")
    assert filled == texts
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


def test_nothing_is_loaded_from_outside(site: Path) -> None:
    paths = [path for kind in ("html", "css") for path in site.rglob(f"*.{kind}")]
    assert len(paths) > 20
    found = {path: LOADED.findall(path.read_text(encoding="utf-8")) for path in paths}
    assert {path.name: addresses for path, addresses in found.items() if addresses} == {}


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = (site / "reference").rglob("*.html")
    anchors = {a for p in pages for a in re.findall(r'id="([\w.]+)"', p.read_text("utf-8"))}
    assert [name for name in annealtune.__all__ if f"annealtune.{name}" not in anchors] == []


def check_as_a_reader(browser: Browser, address: str, name: str) -> None:
    """Wide and narrow, light and dark: no complaint, no request elsewhere, nothing sticks out."""
    for width in (1280, 390):
        for scheme in ("light", "dark"):
            browser.open(f"{address}{name.removesuffix('index.html')}", width, scheme)
            elsewhere = [each for each in browser.requests if not each.startswith(address)]
            assert (browser.errors, elsewhere) == ([], []), (name, width, scheme)
            assert browser.size()[0] == width, (name, width, scheme)


def test_a_reader_sees_a_whole_page(browser: Browser, address: str) -> None:
    for name in ("index.html", "tutorial/index.html"):
        check_as_a_reader(browser, address, name)


@pytest.mark.slow
def test_a_reader_sees_every_page(browser: Browser, address: str, site: Path) -> None:
    for name in (path.relative_to(site).as_posix() for path in site.rglob("*.html")):
        if not name.startswith(("404", PAGES)):
            check_as_a_reader(browser, address, name)


def test_the_pages_that_are_built_from_records(browser: Browser, address: str, site: Path) -> None:
    built = {path.relative_to(site).as_posix(): path for path in site.glob(f"{PAGES}/**/*.html")}
    assert {f"{PAGES}/{name}" for name in ("index.html", "quality.html")} < built.keys()
    for name, page in built.items():
        check_as_a_reader(browser, address, name)
        links = browser.run("return [...document.querySelectorAll('a[href]')].map(a => a.href)")
        for link in links:
            path, _, anchor = link.removeprefix(address).partition("#")
            if link.startswith(address):
                assert (site / path).exists(), (name, link)
            if anchor and path == name.removesuffix("index.html"):
                assert f'id="{anchor}"' in page.read_text("utf-8"), (name, link)


def test_the_browser_tells_what_is_wrong(browser: Browser, tmp_path: Path) -> None:
    """The checks above can fail: a page that asks, complains and is too wide."""
    page = tmp_path / "wrong.html"
    page.write_text(
        "<!doctype html><meta name='viewport' content='width=device-width'>"
        "<img src='missing.png'><p style='width: 2000px'>wide</p>"
        "<script>console.error('oh'); nothing.at.all</script>"
    )
    browser.open(page, 390, "light")
    assert any("oh" in each for each in browser.errors)
    assert any("Uncaught" in each for each in browser.errors)
    assert (tmp_path / "missing.png").as_uri() in browser.requests
    assert browser.size()[0] > 390


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
            "".join(output["text"])
            for cell in notebook["cells"]
            for output in cell.get("outputs", [])
        ]
        for notebook in (json.loads(copy.read_text(encoding="utf-8")), shown)
    )
    check_same("\n".join(made), "\n".join(kept))
