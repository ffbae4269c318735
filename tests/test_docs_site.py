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
    """The site; a link or an anchor that leads nowhere is a warning, and so an error."""
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


def test_nothing_is_loaded_from_outside(site: Path) -> None:
    paths = [path for kind in ("html", "css") for path in site.rglob(f"*.{kind}")]
    assert len(paths) > 20
    found = {path: LOADED.findall(path.read_text(encoding="utf-8")) for path in paths}
    assert {path.name: addresses for path, addresses in found.items() if addresses} == {}


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = (site / "reference").rglob("*.html")
    anchors = {a for p in pages for a in re.findall(r'id="([\w.]+)"', p.read_text("utf-8"))}
    assert [name for name in annealtune.__all__ if f"annealtune.{name}" not in anchors] == []


def test_the_results_are_published_as_they_are(site: Path) -> None:
    results = sorted((DOCS / "results").rglob("*.html"))
    assert DOCS / "results" / "quality.html" in results
    for path in results:
        assert (site / path.relative_to(DOCS)).read_bytes() == path.read_bytes()


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
        if not name.startswith(("results/", "404")) or name.endswith("quality/index.html"):
            check_as_a_reader(browser, address, name)


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
