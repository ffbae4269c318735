"""What a figure consists of: panels that are drawn, and the words around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from matplotlib.axes import Axes

from .style import HEIGHT


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
