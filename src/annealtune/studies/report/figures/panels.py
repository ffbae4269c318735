"""A figure: what to draw, its files, which have the same bytes every time, its form on a page."""

import html
import io
import json
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FuncFormatter

from .style import FAINT, HEIGHT, INK, RAMP, SERIES, WIDE, WIDTH, blank, figure_of, style

# Colours that a page sets, so that it can be light or dark.
PAGE_COLOURS = {
    "#ffffff": "none",
    INK: "currentColor",
    FAINT: "var(--grid)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, 1)},
    **{colour: f"var(--ramp-{number})" for number, colour in enumerate(RAMP, 1)},
}
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_GROUP_ID = re.compile(r'(?<=<g) id="[^"]*"')
_PLACES = re.compile(r' (?:d|x|y|transform)="[^"]*"')
_LATE_DIGITS = re.compile(r"(\.\d)\d+")  # more than tenths of a point


class Panel(NamedTuple):
    """One drawing, saved under its name.

    Attributes:
        name: of its files, without an ending; letters, digits and hyphens.
        title: what it shows.
        draw: draws it into axes and returns them.
        height: in inches.
        is_wide: whether it takes the whole width of a page. It is then drawn twice, wide and
            narrow, so that its letters can be read on a phone; a page shows the one that fits.
        caption: what a page says below it; by default its title.
    """

    name: str
    title: str
    draw: Callable[[Axes], Axes]
    height: float = HEIGHT
    is_wide: bool = False
    caption: str = ""


class Drawing(NamedTuple):
    """A panel in all its forms.

    Attributes:
        panel: what is drawn.
        inline: HTML for a page: an ``<svg>`` element, or a wide and a narrow one; its ids are
            unique, its colours those of the page, and it holds the values of its points.
        svg: the content of a file; empty if none was asked for.
        pdf: likewise.
    """

    panel: Panel
    inline: str
    svg: bytes
    pdf: bytes


def render(panel: Panel, *, files: bool = True) -> Drawing:
    """Draw a panel.

    Args:
        panel: what to draw.
        files: whether its files are wanted too; without them it takes half the time.
    """
    width = WIDE if panel.is_wide else WIDTH
    svg, pdf, points = _draw(panel, panel.name, width, with_pdf=files)
    inline = _inline(panel, svg, points, "wide" if panel.is_wide else "")
    if panel.is_wide:
        narrow, _, points = _draw(panel, f"{panel.name}-narrow", WIDTH, with_pdf=False)
        inline += _inline(panel, narrow, points, "narrow")
    return Drawing(panel, inline, svg.encode() if files else b"", pdf)


def _draw(panel: Panel, name: str, width: float, *, with_pdf: bool) -> tuple[str, bytes, str]:
    """Return SVG, PDF and the places of the points."""
    with style(name):
        axes = blank(panel.height, width)
        figure = figure_of(axes)
        panel.draw(axes)
        svg, pdf = io.BytesIO(), io.BytesIO()
        figure.draw_without_rendering()  # everything finds its place
        figure.set_layout_engine("none")
        if with_pdf:
            figure.savefig(pdf, format="pdf", metadata={"CreationDate": None, "Title": panel.title})
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(svg, format="svg", metadata=nothing)
        return svg.getvalue().decode(), pdf.getvalue(), _points(figure)


def _inline(panel: Panel, svg: str, points: str, form: str) -> str:
    """Return the drawing as an element of a page: the page's colours, tenths of a point."""
    text = svg[svg.index("<svg") :]
    text = _COLOUR.sub(lambda found: PAGE_COLOURS.get(found[0], found[0]), text)
    text = _PLACES.sub(lambda found: _LATE_DIGITS.sub(r"\1", found[0]), _GROUP_ID.sub("", text))
    # JSON has many double quotes; between single ones they can stay.
    added = f" class='{form}' role='img' aria-label='{_in_quotes(panel.title)}'"
    added += f" data-points='{_in_quotes(points)}'" if points else ""
    return text.replace("<svg", f"<svg{added}", 1)


def _in_quotes(text: str) -> str:
    return html.escape(text, quote=False).replace("'", "&#39;")


def _points(figure: Figure) -> str:
    """Return the points of all lines that have a label, as JSON for the script of the page.

    Returns:
        A list of series ``[name, colour, [x, ...], [y, ...], [text, ...]]`` in the coordinates of
        the SVG; empty without any. Points outside their axes are left out.
    """
    found = []
    for axes in figure.axes:
        x_name = axes.get_xlabel() or figure.axes[-1].get_xlabel()
        for line in axes.lines:
            name = str(line.get_label())
            if name.startswith("_"):  # matplotlib's own
                continue
            data = np.asarray(line.get_xydata(), dtype=float)
            places = axes.transData.transform(data)
            inside = [axes.bbox.padded(2).contains(x, y) for x, y in places]
            places *= 72 / figure.dpi
            texts = [
                f"{x_name} {_text(axes.xaxis, x)}{_text(axes.yaxis, y, ': ')}"
                for x, y in data[inside]
            ]
            xs, ys = np.round(places[inside], 1).T.tolist() if texts else ([], [])
            height = 72 * figure.get_figheight()
            ys = [round(height - y, 1) for y in ys]
            colour = str(line.get_color())
            found.append([name.strip(), PAGE_COLOURS.get(colour, colour), xs, ys, texts])
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")) if found else ""


def _text(axis: Axis, value: float, before: str = "") -> str:
    """Return a value as its axis writes it; nothing for an axis of names."""
    formatter = axis.get_major_formatter()
    if isinstance(formatter, FixedFormatter):
        return ""
    text = formatter(value) if isinstance(formatter, FuncFormatter) else f"{value:.4g}"
    return before + str(text)
