"""Every page that is committed, opened by a reader: wide and narrow, light and dark."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "results").rglob("*.html"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_it_asks_for_nothing_complains_of_nothing_and_fits(browser, page):
    for width in (1280, 390):
        for scheme in ("light", "dark"):
            browser.open(page, width, scheme)
            assert (browser.errors, browser.requests) == ([], [page.as_uri()])
            assert browser.size()[0] == width


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_its_links_lead_somewhere(browser, page):
    browser.open(page, 1280, "light")
    links = browser.run("return [...document.querySelectorAll('a[href]')].map(a => a.href)")
    for link in links:
        address, _, anchor = link.partition("#")
        if address.startswith("file://"):
            assert Path(address.removeprefix("file://")).is_file(), link
        assert not (address == page.as_uri() and anchor) or f'id="{anchor}"' in page.read_text()


def test_the_browser_tells_what_is_wrong(browser, tmp_path):
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
