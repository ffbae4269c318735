"""Every page that is committed, opened by a reader: wide and narrow, light and dark."""

from pathlib import Path

import pytest

from tools.browser import Browser, find

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "results").glob("*.html"))

pytestmark = pytest.mark.skipif(find() is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_asks_for_nothing_complains_of_nothing_and_fits(browser, page):
    for width in (1280, 390):
        for dark in (False, True):
            opened = browser.open(page, width=width, dark=dark)
            assert (opened.complaints, opened.requests) == ([], [])
            assert opened.size[0] == width
            opened.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_links_lead_somewhere(browser, page):
    opened = browser.open(page)
    links = opened.evaluate("[...document.querySelectorAll('a[href]')].map(a => a.href)")
    opened.close()
    for link in links:
        address, _, anchor = link.partition("#")
        if address.startswith("file://"):
            assert Path(address.removeprefix("file://")).exists(), link
        assert not (address == page.as_uri() and anchor) or f'id="{anchor}"' in page.read_text()


def test_the_browser_tells_what_is_wrong(browser, tmp_path):
    """The checks above can fail: a page that asks, complains and is too wide."""
    page = tmp_path / "wrong.html"
    page.write_text(
        "<!doctype html><img src='missing.png'><p style='width: 2000px'>wide</p>"
        "<script>console.error('oh'); nothing.at.all</script>"
    )
    opened = browser.open(page, width=390)
    assert any("oh" in each for each in opened.complaints)
    assert any("ncaught" in each for each in opened.complaints)
    assert opened.requests == [(tmp_path / "missing.png").as_uri()]
    assert opened.size[0] > 390
    opened.close()
