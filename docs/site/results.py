"""A hook of the docs site: the pages of the studies whose records are kept are built into it."""

from typing import Any

from tools.results import PAGES, build

PLACE = "<!-- the pages of the studies -->"


def on_pre_build(**_: Any) -> None:
    """Build the pages, so that the site finds them among its files."""
    build()


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Link the pages where a page asks for it; before the first record there is nothing to link."""
    link = f"[The pages of these studies]({PAGES.name}/index.html)."
    return markdown.replace(PLACE, link if (PAGES / "index.html").is_file() else "")
