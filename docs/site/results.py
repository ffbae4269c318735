"""A hook of the docs site: pages and figures that are built from the records of runs.

`<!-- page: NAME.html TEXT -->` becomes a link to a built page, `<!-- figures: NAME -->` the paper's
figures from the record of that name.
"""

import re
from typing import Any

from annealtune.studies.records import Study
from annealtune.studies.report.figures.paper import paper_figures
from tools.results import PAGES, build_all

PAGE = re.compile(r"<!-- page: (\S+) (.*?) -->")
FIGURES = re.compile(r"<!-- figures: ([\w-]+) -->")
_kept: dict[str, Study] = {}


def on_pre_build(**_: Any) -> None:
    """Build the pages, so that the site finds them among its files."""
    _kept.update({study.name: study for study in build_all()})


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put links and figures where a page asks for them."""
    return FIGURES.sub(_drawn, PAGE.sub(rf"[\2]({PAGES.name}/\1)", markdown))


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
