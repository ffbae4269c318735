"""Names at the right end of lines, instead of a legend."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from .style import label

# Inches that a name takes.
_ROW = 0.16


class EndLabel(NamedTuple):
    """A name, its colour, and the height in the axes at which its line ends."""

    text: str
    colour: str
    y: float


def write_at_ends(axes: Axes, labels: Sequence[EndLabel], *, bold: str | None = None) -> None:
    """Write names beside the right edge, moved apart where they would cover each other.

    The limits of the axes must be final.

    Args:
        axes: with its lines.
        labels: where each line ends, in the coordinates of the data.
        bold: the name that stands out.
    """
    if not labels:
        return
    figure = axes.get_figure(root=True)
    assert figure is not None
    inches = figure.get_figheight() * axes.get_position().height
    gap = _ROW / max(inches, 0.5)
    places = []
    for each in labels:
        (_, pixel) = axes.transData.transform((axes.get_xlim()[1], each.y))
        (_, height) = axes.transAxes.inverted().transform((0, pixel))
        places.append(min(max(height, 0.0), 1.0))
    for index, height in zip(_order(places), _apart(sorted(places), gap), strict=True):
        each = labels[index]
        axes.text(
            1.015,
            height,
            label(each.text),
            color=each.colour,
            transform=axes.transAxes,
            va="center",
            fontsize=8.5,
            fontweight="bold" if each.text == bold else "normal",
        )


def _order(places: Sequence[float]) -> list[int]:
    return sorted(range(len(places)), key=places.__getitem__)


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """Move sorted heights apart by at least a gap, from the bottom up, then down from the top.

    Example:
        >>> [round(height, 2) for height in _apart([0.5, 0.5, 1.0], 0.1)]
        [0.5, 0.6, 1.0]
    """
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + gap) if moved else height)
    top = max(1.0, gap * (len(moved) - 1))
    for place in reversed(range(len(moved))):
        moved[place] = min(moved[place], top)
        top = moved[place] - gap
    return moved
