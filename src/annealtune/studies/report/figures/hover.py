"""The values behind the points of a figure, for the script of the page to show.

A drawing function says what stands where, in the coordinates of its axes; when the figure is
finished, `marks` turns that into places on the drawing. A page shows the values of the nearest
point under the mouse, a finger or the arrow keys. Files of figures are not changed by it.
"""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_TENTHS = 1


class Series(NamedTuple):
    """Some points of one drawing.

    Attributes:
        axes: that they are drawn in.
        name: what they belong to, such as a method.
        colour: of the mark that is put on a point.
        xs: places in the coordinates of the axes.
        ys: likewise.
        texts: what is shown beside the name, one for each point.
        is_line: whether the points are joined, so that the line can be made to stand out.
    """

    axes: Axes
    name: str
    colour: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    texts: tuple[str, ...]
    is_line: bool


class HoverFigure(Figure):
    """A figure that knows the values of its points."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.series: list[Series] = []


def show_values(
    axes: Axes,
    name: str,
    colour: str,
    xs: Sequence[float],
    ys: Sequence[float],
    texts: Sequence[str],
    *,
    is_line: bool = False,
) -> None:
    """Say what a page shows where some points are drawn; nothing happens in other figures.

    Args:
        axes: that the points are drawn in, made by `style.blank`.
        name: what they belong to, such as a method; shown in bold.
        colour: one of `style.SERIES`, `style.INK`.
        xs: places in the coordinates of the axes; a point that is not finite is left out.
        ys: likewise.
        texts: what to show, such as ``"epoch 3: 97.2 %"``; a line a piece between newlines.
        is_line: whether the points are joined: the line then stands out too.
    """
    figure = axes.get_figure(root=True)
    if isinstance(figure, HoverFigure):
        columns = tuple(map(float, xs)), tuple(map(float, ys)), tuple(texts)
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise ValueError(f"xs, ys and texts must be of one length, got {sorted(lengths)}")
        figure.series.append(Series(axes, name, colour, *columns, is_line))


def marks(figure: Figure, colours: dict[str, str]) -> str:
    """Return the points of a figure that is laid out, as JSON for the page; empty without any.

    Args:
        figure: a `HoverFigure`, or another one, which has none.
        colours: what a page writes for a colour.

    Returns:
        A list of series, each ``[name, colour, is_line, [x, ...], [y, ...], [text, ...]]``, in
        the coordinates of the SVG. Points outside their axes are left out.
    """
    found = []
    for series in figure.series if isinstance(figure, HoverFigure) else ():
        places = [
            (x, y, text)
            for at_x, at_y, text in zip(series.xs, series.ys, series.texts, strict=True)
            if (place := _place(figure, series.axes, at_x, at_y)) is not None
            for x, y in (place,)
        ]
        if places:
            xs, ys, texts = (list(column) for column in zip(*places, strict=True))
            colour = colours.get(series.colour, series.colour)
            found.append([series.name, colour, int(series.is_line), xs, ys, texts])
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")) if found else ""


def _place(figure: Figure, axes: Axes, x: float, y: float) -> tuple[float, float] | None:
    """Return where a point is in the SVG: in points of 1/72 inch, from the upper left corner."""
    if not (math.isfinite(x) and math.isfinite(y)):
        return None
    left, bottom = axes.transData.transform((x, y))
    box = axes.bbox
    slack = 1.0
    is_inside = (
        box.x0 - slack <= left <= box.x1 + slack and box.y0 - slack <= bottom <= box.y1 + slack
    )
    if not is_inside:  # also what is not finite on a logarithmic axis
        return None
    scale = 72 / figure.dpi
    height = 72 * figure.get_figheight()
    return round(left * scale, _TENTHS), round(height - bottom * scale, _TENTHS)
