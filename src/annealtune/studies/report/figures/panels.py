"""A figure: its panels, the words around them, and files that have the same bytes every time."""

import io
from collections.abc import Callable
from typing import NamedTuple

from matplotlib.axes import Axes

from .compact_svg import compact
from .style import FAINT, HEIGHT, INK, SERIES, blank, style

# Colours that a page sets, so that it can be light or dark.
PAGE_COLOURS = {
    "#ffffff": "none",
    INK: "currentColor",
    FAINT: "var(--grid)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, 1)},
}


class Panel(NamedTuple):
    """One drawing, saved under its name.

    Attributes:
        name: of its files, without an ending; letters, digits and hyphens.
        title: what it shows.
        draw: draws it into axes and returns them.
        height: in inches.
    """

    name: str
    title: str
    draw: Callable[[Axes], Axes]
    height: float = HEIGHT


class Plate(NamedTuple):
    """Some panels under one caption, as a figure of the paper has them.

    Attributes:
        name: letters, digits and hyphens.
        title: a heading.
        caption: what is seen, and which figure of the paper it is.
        panels: at least one.
    """

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]


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
        axes = blank(panel.height)
        figure = axes.figure.get_figure(root=True)
        panel.draw(axes)
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
