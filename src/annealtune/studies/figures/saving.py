"""Figures as files: small, and the same bytes every time."""

from __future__ import annotations

import io
from typing import NamedTuple

from .compact_svg import compact
from .panels import Panel
from .style import FAINT, INK, SERIES, blank, style

# Colours that a page sets, so that it can be light or dark.
PAGE_COLOURS = {
    "#ffffff": "none",
    INK: "currentColor",
    FAINT: "var(--grid)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, 1)},
}


class Drawing(NamedTuple):
    """A panel in all its forms.

    Attributes:
        name: of its files, without an ending.
        title: what it shows.
        inline: an ``<svg>`` element for a page, its ids unique, its colours those of the page.
        svg: the content of a file.
        pdf: the content of a file.
    """

    name: str
    title: str
    inline: str
    svg: bytes
    pdf: bytes


def render(panel: Panel) -> Drawing:
    """Draw a panel."""
    with style():
        figure = panel.draw(blank(panel.height)).figure
        svg, pdf = io.BytesIO(), io.BytesIO()
        figure.savefig(pdf, format="pdf", metadata={"CreationDate": None, "Title": panel.title})
        figure.set_layout_engine("none")  # everything is in its place now
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    content = svg.getvalue()
    return Drawing(
        panel.name,
        panel.title,
        inline=compact(content, panel.name, panel.title, PAGE_COLOURS),
        svg=compact(content, panel.name, panel.title).encode(),
        pdf=pdf.getvalue(),
    )
