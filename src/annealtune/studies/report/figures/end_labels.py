"""Names at the right end of lines, set apart so that none lies upon another."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from .style import label

_LINE = 0.155  # inches from one name to the next
_SHARE = 0.76  # of a figure's height, that the axes take at least
_LONGEST = 22  # letters


class EndLabel(NamedTuple):
    """A name for the end of a line.

    Attributes:
        text: what to write.
        colour: of the line.
        y: where the line ends, in the coordinates of the axes; beyond the axis it is put at the
            edge, with an arrow.
        is_bold: whether it stands out.
    """

    text: str
    colour: str
    y: float
    is_bold: bool = False


def name_ends(axes: Axes, labels: Sequence[EndLabel], share: float = _SHARE) -> None:
    """Write names at the right of the axes, whose limits must be final.

    A name that had to move is joined to its line's end by a thin line. The figure grows with the
    number of names.

    Args:
        axes: with its lines.
        labels: in any order.
        share: of the figure's height, that the axes take at least.
    """
    figure = axes.get_figure(root=True)
    if figure is None or not labels:
        return
    needed = (len(labels) * _LINE + 0.1) / share
    if figure.get_figheight() < needed:
        figure.set_figheight(needed)
    gap = _LINE / (share * figure.get_figheight())
    ends = [_height(axes, each.y) for each in labels]
    leaders = []
    for each, end, place in zip(labels, ends, spread(ends, gap), strict=True):
        inside = min(max(end, 0.0), 1.0)
        beyond = "" if -0.01 <= end <= 1.01 else (" ↑" if end > 1 else " ↓")
        leaders.append([(1.0, inside), (1.012, inside), (1.028, place)])
        axes.text(
            1.036,
            place,
            short(each.text) + beyond,
            color=each.colour,
            fontsize=8.5,
            fontweight="bold" if each.is_bold else "normal",
            verticalalignment="center_baseline",
            transform=axes.transAxes,
        )
    axes.add_collection(
        LineCollection(
            leaders,
            colors=[each.colour for each in labels],
            linewidths=0.7,
            transform=axes.transAxes,
            clip_on=False,
        ),
        autolim=False,
    )


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move places within 0 to 1 as little as needed for a gap between them; keep their order.

    Example:
        >>> [round(place, 2) for place in spread([0.5, 0.5, 0.9], 0.1)]
        [0.45, 0.55, 0.9]
    """
    order = sorted(range(len(places)), key=lambda index: places[index])
    gap = min(gap, 1 / max(1, len(places) - 1))
    # Neighbours that are too close form a block around their mean; blocks that meet are joined.
    blocks: list[tuple[float, int]] = []  # middle, how many
    for index in order:
        middle, count = min(max(places[index], 0.0), 1.0), 1
        blocks.append((middle, count))
        while len(blocks) > 1:
            (low, below), (high, above) = blocks[-2:]
            if high - low >= gap * (below + above) / 2 - 1e-9:
                break
            count = below + above
            middle = (low * below + high * above) / count
            half = gap * (count - 1) / 2
            blocks[-2:] = [(min(max(middle, half), 1 - half), count)]
    found = [0.0] * len(places)
    ordered = iter(order)
    for middle, count in blocks:
        for step in range(count):
            found[next(ordered)] = middle + gap * (step - (count - 1) / 2)
    return found


def short(text: str, longest: int = _LONGEST) -> str:
    """Return a name that fits beside a figure: of a long one, its beginning and its end.

    Example:
        >>> short("a-method-with-quite-a-long-name")
        'a-method-wi…-long-name'
    """
    text = label(text)
    if len(text) <= longest:
        return text
    end = (longest - 1) // 2
    return f"{text[: longest - 1 - end]}…{text[-end:]}"


def _height(axes: Axes, y: float) -> float:
    """Return where a value is on the axis: 0 at the bottom, 1 at the top; also beyond them."""
    to_axes = axes.transData + axes.transAxes.inverted()
    return float(to_axes.transform((axes.get_xlim()[0], y))[1])
