"""A hook of the docs site: drawings become part of the page, so that they follow its colours.

A drawing is an SVG whose class is `drawn`. As an image it follows the colours of the system, which
is right on the repository's own pages; inside the page it follows the toggle of the site as well.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

IMAGE = re.compile(r'<img alt="(?P<alt>[^"]*)" src="(?P<source>[^"]+\.svg)"\s*/?>')


def on_page_content(html: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Replace the images that are drawings."""
    folder = Path(config.docs_dir, page.file.src_uri).parent
    # By now a path leads from the page's address, which lies one folder deeper than its file.
    above = "" if page.file.name in ("index", "README") else "../"

    def inlined(match: re.Match[str]) -> str:
        path = folder / match["source"].removeprefix(above)
        text = path.read_text(encoding="utf-8")
        if 'class="drawn"' not in text:
            return match[0]
        # Without its own colours it takes those of the page: style.css has the same names.
        drawing = re.sub(r"<style>.*?</style>\n", "", text[text.index("<svg") :]).strip()
        label = f'<svg role="img" aria-label="{match["alt"]}"'
        return f'<div class="drawing">{drawing.replace("<svg", label, 1)}</div>'

    return IMAGE.sub(inlined, html)
