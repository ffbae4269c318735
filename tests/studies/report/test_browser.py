"""The page in a real browser: no error, no request, nothing cut off, values on hover."""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from annealtune.studies.records import Study
from annealtune.studies.report.several import write_overview
from annealtune.studies.report.writing import write_report

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
        command="annealtune study " + "x" * 300,
    )


@pytest.fixture(scope="module")
def page(study: Study) -> Path:
    return write_report(study)


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_the_page_is_whole(browser: Any, page: Path, width: int, scheme: str) -> None:
    browser.open(page, width, scheme)
    assert browser.errors == []
    assert browser.requests == [page.as_uri()]
    assert browser.run("return innerWidth") == width
    for state in ("closed", "open"):
        browser.run(
            "document.querySelectorAll('details')"
            f".forEach(each => each.open = {str(state == 'open').lower()})"
        )
        assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
    sizes = browser.run(
        f"return {SHOWN}.map(svg => svg.getBoundingClientRect())"
        ".map(box => [box.left, box.right, box.height])"
    )
    assert len(sizes) == len(list((page.parent / "figures").glob("*.svg"))) == 15
    assert all(0 <= left < right <= width for left, right, _ in sizes)
    assert all(right - left > 250 and height > 120 for left, right, height in sizes)
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_letters_in_figures_can_be_read(browser: Any, page: Path, width: int, scheme: str) -> None:
    """None is smaller than 8 pixels, on whichever screen."""
    browser.open(page, width, scheme)
    sizes = browser.run(
        f"return {SHOWN}.flatMap(svg => [...svg.querySelectorAll('text')]"
        ".map(text => parseFloat(getComputedStyle(text).fontSize) * svg.getScreenCTM().a))"
    )
    assert min(sizes) > 8


def test_there_is_no_hole_in_the_grid(browser: Any, page: Path) -> None:
    """Two figures a row; one that is left over stands in the middle."""
    browser.open(page, 1280, "light")
    rows = browser.run(
        "return [...document.querySelectorAll('.panels')].map(grid => {"
        "  const boxes = [...grid.children].map(each => each.getBoundingClientRect());"
        "  return boxes.map(box => [box.top, (box.left + box.right) / 2]); })"
    )
    assert sum(map(len, rows)) == 14  # all but the hero
    for grid in rows:
        by_top: dict[float, list[float]] = {}
        for top, middle in grid:
            by_top.setdefault(round(top), []).append(middle)
        for middles in by_top.values():
            assert sum(middles) / len(middles) == pytest.approx(640, abs=2)


def test_figures_follow_the_scheme(browser: Any, page: Path) -> None:
    """Lines and letters have another colour on a dark page, and stand out from it."""
    panel = "#panel-curves-validation-loss"
    seen = {}
    for scheme in ("light", "dark"):
        browser.open(page, 1280, scheme)
        look = f'return getComputedStyle(document.querySelector("{panel} %s")).%s'
        seen[scheme] = [
            browser.run(look % ("path[style*='series-1)']", "stroke")),
            browser.run(look % ("text", "fill")),
            browser.run("return getComputedStyle(document.body).backgroundColor"),
        ]
    assert all(a != b for a, b in zip(seen["light"], seen["dark"], strict=True))
    for line, letters, background in seen.values():
        assert _contrast(line, background) > 3
        assert _contrast(letters, background) > 7


@pytest.mark.parametrize("width", [1280, 390])
def test_the_values_of_a_point_are_shown(browser: Any, page: Path, width: int) -> None:
    browser.open(page, width, "light")
    shown = "[...document.querySelectorAll('#panel-hero svg')].find(svg => svg.clientWidth)"
    values = "document.querySelector('.values')"
    assert browser.run(f"return {values}.hidden")
    x, y, text = browser.run(
        f"const svg = {shown};"
        "const [, , , xs, ys, texts] = JSON.parse(svg.dataset.points)[0];"
        "const spot = new DOMPoint(xs[2], ys[2]).matrixTransform(svg.getScreenCTM());"
        "return [spot.x, spot.y, texts[2]]"
    )
    assert text == "seed 2: 90.00 %"
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x + 1, y=y + 1)
    told, left, right = browser.run(
        f"const box = {values}.getBoundingClientRect();"
        f"return [{values}.innerText, box.left, box.right]"
    )
    assert told.endswith(text)
    assert 0 <= left < right <= width
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    assert browser.run(f"return {values}.hidden")
    browser.run(f"{shown}.focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        browser.ask("Input.dispatchKeyEvent", type="keyDown", key=key)
    assert browser.run(f"return {values}.innerText").endswith(text)
    browser.ask("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    assert browser.run(f"return {values}.hidden")
    assert browser.errors == []


def test_wide_tables_scroll_by_themselves(browser: Any, page: Path) -> None:
    browser.open(page, 390, "light")
    inner, outer = browser.run(
        "document.querySelector('#seed-by-seed').open = true;"
        "const box = document.querySelector('#seed-by-seed .scroll');"
        "return [box.scrollWidth, box.clientWidth]"
    )
    assert inner > outer


def test_a_click_sorts_a_table(browser: Any, page: Path) -> None:
    browser.open(page, 1280, "light")
    click = "document.querySelectorAll('#seed-by-seed .titles button')[2].click();"
    read = (
        "return [...document.querySelectorAll('#seed-by-seed tbody tr')]"
        ".map(row => row.cells[2].dataset.order)"
    )
    for direction in (1, -1):
        values = browser.run(click + read)
        known = [direction * float(value) for value in values if value]
        assert known == sorted(known)
        assert values[len(known) :] == [""] * 3  # runs without a result come last
    assert browser.errors == []


def test_the_command_can_be_copied(browser: Any, page: Path) -> None:
    browser.open(page, 1280, "light")
    browser.run(
        "window.copied = null;"
        "navigator.clipboard.writeText = async text => { window.copied = text; };"
        "document.querySelector('#origin .copyable button').click()"
    )
    assert browser.run("return window.copied") == "annealtune study " + "x" * 300


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_several_studies_side_by_side(
    browser: Any, study: Study, tmp_path: Path, width: int, scheme: str
) -> None:
    page = write_overview([study, study], tmp_path, figures=False)
    browser.open(page, width, scheme)
    assert browser.errors == []
    assert browser.requests == [page.as_uri()]
    assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
    tops = browser.run(
        "return [...document.querySelectorAll('.card')].map(c => c.getBoundingClientRect().top)"
    )
    assert (tops[0] == tops[1]) == (width == 1280)


def test_a_screenshot_is_not_blank(browser: Any, page: Path) -> None:
    browser.open(page, 390, "dark")
    shot = browser.ask("Page.captureScreenshot", format="png")
    assert len(base64.b64decode(shot["data"])) > 10_000


def _contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours as WCAG defines it."""
    lights = []
    for colour in (first, second):
        shares = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [s / 12.92 if s <= 0.03928 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_a_command_breaks_at_spaces_alone(
    browser: Any, study_writer: Callable[..., Study], tmp_path: Path
) -> None:
    command = "annealtune study --model mlp --epochs 8 --methods self-tuned,sgd-sa --out '  a-b'"
    study = study_writer(tmp_path / "study", {"sgd": {0: {}}}, command=command)
    browser.open(write_report(study, figures=False), 390, "light")
    assert browser.run("return document.querySelector('.copyable pre').textContent") == command
    # Where a word is broken, a range of it has a box on each line.
    lines_of_words = browser.run("""
        const lines = [], walker = document.createTreeWalker(
            document.querySelector('.copyable pre'), NodeFilter.SHOW_TEXT);
        while (walker.nextNode())
            for (const word of walker.currentNode.data.matchAll(/[^ ]+/g)) {
                const range = document.createRange();
                range.setStart(walker.currentNode, word.index);
                range.setEnd(walker.currentNode, word.index + word[0].length);
                lines.push(range.getClientRects().length);
            }
        return lines""")
    assert len(lines_of_words) == 11
    assert set(lines_of_words) == {1}
