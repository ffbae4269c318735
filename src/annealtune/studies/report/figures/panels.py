"""A figure: its panels, the words around them, and files that have the same bytes every time."""

import io
from collections.abc import Callable
from typing import NamedTuple

from matplotlib.axes import Axes

from .compact_svg import compact
from .hover import marks
from .style import FAINT, HEIGHT, INK, RAMP, SERIES, WIDE, WIDTH, blank, style

# Colours that a page sets, so that it can be light or dark.
PAGE_COLOURS = {
    "#ffffff": "none",
    INK: "currentColor",
    FAINT: "var(--grid)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, 1)},
    **{colour: f"var(--ramp-{number})" for number, colour in enumerate(RAMP, 1)},
}


class Panel(NamedTuple):
    """One drawing, saved under its name.

    Attributes:
        name: of its files, without an ending; letters, digits and hyphens.
        title: what it shows.
        draw: draws it into axes and returns them.
        height: in inches.
        is_wide: whether it takes the whole width of a page. It is then drawn twice, wide and
            narrow, so that its letters can be read on a phone; a page shows the one that fits.
    """

    name: str
    title: str
    draw: Callable[[Axes], Axes]
    height: float = HEIGHT
    is_wide: bool = False


class Plate(NamedTuple):
    """Some panels under one caption, as a figure of a paper has them.

    Attributes:
        name: letters, digits and hyphens.
        title: a heading.
        caption: what is seen.
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
        inline: HTML for a page: an ``<svg>`` element, or a wide and a narrow one; its ids are
            unique, its colours those of the page, and it holds the values of its points.
        svg: the content of a file; empty if none was asked for.
        pdf: likewise.
        is_wide: whether it takes the whole width of a page.
    """

    name: str
    title: str
    inline: str
    svg: bytes = b""
    pdf: bytes = b""
    is_wide: bool = False


def render(panel: Panel, *, files: bool = True) -> Drawing:
    """Draw a panel.

    Args:
        panel: what to draw.
        files: whether its files are wanted too; without them it takes half the time.
    """
    width = WIDE if panel.is_wide else WIDTH
    svg, pdf, points = _draw(panel, width, with_pdf=files)
    form = "wide" if panel.is_wide else ""
    inline = _inline(panel, svg, points, panel.name, form)
    if panel.is_wide:
        narrow, _, points = _draw(panel, WIDTH, with_pdf=False)
        inline += _inline(panel, narrow, points, f"{panel.name}-narrow", "narrow")
    return Drawing(
        panel.name,
        panel.title,
        inline,
        svg=compact(svg, panel.name, panel.title).encode() if files else b"",
        pdf=pdf,
        is_wide=panel.is_wide,
    )


def _draw(panel: Panel, width: float, *, with_pdf: bool) -> tuple[bytes, bytes, str]:
    """Return SVG, PDF and the places of the points."""
    with style():
        axes = blank(panel.height, width)
        figure = axes.figure.get_figure(root=True)
        panel.draw(axes)
        svg, pdf = io.BytesIO(), io.BytesIO()
        figure.draw_without_rendering()  # everything finds its place
        figure.set_layout_engine("none")
        if with_pdf:
            metadata = {"CreationDate": None, "Title": panel.title}
            figure.savefig(pdf, format="pdf", metadata=metadata)
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        points = marks(figure, PAGE_COLOURS)
    return svg.getvalue(), pdf.getvalue(), points


def _inline(panel: Panel, svg: bytes, points: str, name: str, form: str) -> str:
    attributes = {"data-points": points, "class": form}
    return compact(svg, name, panel.title, PAGE_COLOURS, {k: v for k, v in attributes.items() if v})
