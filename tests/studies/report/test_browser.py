"""The page in a real browser: no error, no request, nothing cut off, values on hover."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from annealtune.studies.records import Study
from annealtune.studies.report.study_page import write_overview, write_report

pytestmark = pytest.mark.slow
SIZES = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
SHOWN = "[...document.querySelectorAll('figure svg')].filter(svg => svg.clientWidth)"


@pytest.fixture(scope="module")
def study(study_writer: Callable[..., Study], tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Every figure, long names, a long reason."""
    long = "a-method-with-quite-a-long-name-that-somebody-chose"
    return study_writer(
        tmp_path_factory.mktemp("browser") / "study",
        {
            long: {s: {"accuracy": 0.9 + 0.01 * s, "metric": {"rate": 0.1 + s}} for s in range(3)},
            "scheduled-sgd": {0: {}, 1: {}, 2: {"failure": "NoSpacesInThisReason" * 20}},
            "ssa": {s: {"accuracy": 0.3 - 0.05 * s} for s in range(3)},
            "sgd": {0: {}, 1: {"done": 2}, 2: None},
        },
        kinds={long: "sgd-sa"},
        command="annealtune study --model mlp --out " + "x" * 300,
    )


@pytest.fixture(scope="module")
def page(study: Study) -> Path:
    return write_report(study)


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_the_page_is_whole(browser: Any, page: Path, width: int, scheme: str) -> None:
    browser.open(page, width, scheme)
    assert browser.errors == []
    assert browser.requests == [page.as_uri()]
    for state in ("false", "true"):
        browser.run(f"document.querySelectorAll('details').forEach(each => each.open = {state})")
        assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
    sizes = browser.run(
        f"return {SHOWN}.map(svg => svg.getBoundingClientRect())"
        ".map(box => [box.left, box.right, box.height])"
    )
    assert len(sizes) == len(list((page.parent / "figures").glob("*.svg")))
    assert all(0 <= left < right <= width for left, right, _ in sizes)
    assert all(right - left > 250 and height > 120 for left, right, height in sizes)
    letters = browser.run(
        f"return {SHOWN}.flatMap(svg => [...svg.querySelectorAll('text')]"
        ".map(text => parseFloat(getComputedStyle(text).fontSize) * svg.getScreenCTM().a))"
    )
    assert min(letters) > 8  # pixels
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")


def test_figures_follow_the_scheme(browser: Any, page: Path) -> None:
    """Lines and letters have another colour on a dark page."""
    seen = []
    for scheme in ("light", "dark"):
        browser.open(page, 1280, scheme)
        look = 'return getComputedStyle(document.querySelector("#panel-curves-%s")).%s'
        line = browser.run(look % ("validation-loss path[style*='series-1)']", "stroke"))
        seen.append((line, browser.run(look % ("validation-loss text", "fill"))))
    assert all(light != dark for light, dark in zip(*seen, strict=True))


@pytest.mark.parametrize("width", [1280, 390])
def test_the_values_of_a_point_are_shown(browser: Any, page: Path, width: int) -> None:
    browser.open(page, width, "light")
    values = "document.querySelector('.values')"
    assert browser.run(f"return {values}.hidden")
    x, y, text = browser.run(
        "const svg = document.querySelector('#panel-curves-validation-loss svg');"
        "svg.scrollIntoView();"
        "const [, , xs, ys, texts] = JSON.parse(svg.dataset.points)[0];"
        "const spot = new DOMPoint(xs[2], ys[2]).matrixTransform(svg.getScreenCTM());"
        "return [spot.x, spot.y, texts[2]]"
    )
    assert text.startswith("epoch 3: ")
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x + 1, y=y + 1)
    told, left, right = browser.run(
        f"const box = {values}.getBoundingClientRect();"
        f"return [{values}.innerText, box.left, box.right]"
    )
    assert told.endswith(text)
    assert 0 <= left < right <= width
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    assert browser.run(f"return {values}.hidden")
    assert browser.errors == []


def test_a_click_sorts_a_table_and_copies_the_command(browser: Any, page: Path) -> None:
    browser.open(page, 1280, "light")
    click = "document.querySelectorAll('#table-1 .titles button')[2].click();"
    read = (
        "return [...document.querySelectorAll('#table-1 tbody:last-child tr')]"
        ".map(row => row.cells[2].dataset.order)"
    )
    for direction in (1, -1):
        values = browser.run(click + read)
        known = [direction * float(value) for value in values if value]
        assert known == sorted(known)
        assert values[len(known) :] == [""] * 3  # runs without a result come last
    browser.run(
        "navigator.clipboard.writeText = async text => { window.copied = text; };"
        "document.querySelector('#origin .copyable button').click()"
    )
    command = "annealtune study --model mlp --out " + "x" * 300
    assert browser.run("return window.copied") == command


@pytest.mark.parametrize("width", [1280, 390])
def test_several_studies_side_by_side(
    browser: Any, study: Study, tmp_path: Path, width: int
) -> None:
    page = write_overview([study, study], tmp_path, figures=False)
    browser.open(page, width, "light")
    assert browser.errors == []
    assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
    tops = browser.run(
        "return [...document.querySelectorAll('figure')].map(f => f.getBoundingClientRect().top)"
    )
    assert (tops[0] == tops[1]) == (width == 1280)
