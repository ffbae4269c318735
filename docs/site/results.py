"""A hook of the docs site: pages and figures of the studies whose records are kept.

`<!-- the pages of the studies -->` becomes a link to their pages, `<!-- figures: NAME -->` the
paper's figures from the record of that name. Before there is a record, both are nothing.
"""

import re
from typing import Any

from annealtune.studies.records import Study
from annealtune.studies.report.figures.paper import paper_figures
from tools.results import PAGES, build

PLACE = "<!-- the pages of the studies -->"
FIGURES = re.compile(r"<!-- figures: ([\w-]+) -->")
_kept: dict[str, Study] = {}


def on_pre_build(**_: Any) -> None:
    """Build the pages, so that the site finds them among its files."""
    _kept.update({study.name: study for study in build()})


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put links and figures where a page asks for them."""
    link = f"[The pages of these studies]({PAGES.name}/index.html)." if _kept else ""
    return FIGURES.sub(_drawn, markdown.replace(PLACE, link))


def _drawn(match: re.Match[str]) -> str:
    name = match[1]
    parts = []
    for figure in paper_figures(_kept[name]) if name in _kept else ():
        shown = "; ".join(panel.title for panel in figure.panels)
        parts.append(f"**{figure.title}.** {figure.caption} {shown}.")
        parts.append(
            "\n".join(
                f"![{panel.title}]({PAGES.name}/{name}/figures/{panel.name}.svg)"
                f'{{ width="330" title="{panel.title}" }}'
                for panel in figure.panels
            )
        )
    return "\n\n".join(parts)
