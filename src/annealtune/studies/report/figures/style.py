"""One look for all figures: readable small, in print, without colour vision, on light and dark."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from annealtune.studies.records import Study
from annealtune.studies.statistics import sweeps_of

# First the hues of Okabe and Ito, which also look different to colour-blind readers, dark enough
# for thin lines on white; then nine that are as far from these and from each other as there is room
# for. A page gives each one a second tone for a dark background.
SERIES = (
    *("#0072b2", "#d55e00", "#008a65", "#b5548f", "#a87b00", "#5d4e9e", "#6b6b6b", "#a3122f"),
    *("#3f6b00", "#1c2a96", "#6b3a12", "#cc2fb0", "#00717f", "#7d22b8", "#d0506a", "#2d3b48"),
)
# For one method at several rates, the lowest first.
RAMP = (
    *("#cb7e04", "#c26b08", "#bb5501", "#b23f0a", "#a52b1d"),
    *("#951627", "#83002e", "#6d0033", "#580033"),
)
# Beside a ramp of warm colours, the cool ones first.
_BESIDE_RAMP = tuple(SERIES[place] for place in (0, 2, 5, 12, 9, 8, 6, 13, 15, 3, 11))
# The second seven methods are dashed, the third seven dotted and dashed.
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1.2, 1.5)))
_SAME_DASHES = 7
INK = "#333333"
FAINT = "#dddddd"
FONT = "DejaVu Sans"  # comes with matplotlib: the same letters on every machine
WIDTH, HEIGHT = 4.6, 3.1  # inches: two of them beside each other on a page, one on a phone
WIDE = 9.2  # a page's whole width
THIN: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.4}
THICK: dict[str, Any] = {"linewidth": 1.9}
# Beyond this ratio a linear axis shows the largest values alone.
_MOST_EVEN = 10.0

_SETTINGS = {
    "font.family": FONT,
    "font.size": 9.5,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.02,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "text.parse_math": False,  # a dollar in the name of a method is a dollar
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.2,
    "legend.borderpad": 0.0,
    "lines.solid_capstyle": "round",
    "path.simplify_threshold": 0.2,
    "savefig.facecolor": "white",
    "svg.fonttype": "none",
    "pdf.fonttype": 3,  # the drawings of the letters used: quicker than a subset of the font
}


@contextmanager
def style(name: str = "") -> Iterator[None]:
    """Draw in the house style, whatever the reader's own matplotlib settings are.

    Args:
        name: of the drawing: its ids are then found in no other drawing of a page.
    """
    salt = {"svg.hashsalt": f"annealtune {name}"}
    with matplotlib.style.context(["default", _SETTINGS | salt]):
        yield


def blank(height: float = HEIGHT, width: float = WIDTH) -> Axes:
    """Return empty axes on a figure of their own."""
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def figure_of(axes: Axes) -> Figure:
    """Return the figure that axes stand in."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


# --- methods ---


class Look(NamedTuple):
    """How a method is drawn."""

    colour: str
    dashes: Any


def looks_of(study: Study) -> dict[str, Look]:
    """Return the look of every method of a study, the same in all of its figures.

    Methods that differ only in their rate have the colours of a ramp, in the order of their rates,
    and all others colours that stand out beside it.
    """
    looks: dict[str, Look] = {}
    for row, sweep in enumerate(sweeps_of(study)):
        steps = len(sweep.labels) - 1
        for place, method in enumerate(sweep.labels.values()):
            shade = RAMP[round(place * (len(RAMP) - 1) / steps)]
            looks[method] = Look(shade, ("-", "--", ":", "-.")[row % 4])
    colours = _BESIDE_RAMP if looks else SERIES
    for place, method in enumerate(m for m in study.methods if m not in looks):
        dashes = DASHES[place // _SAME_DASHES % len(DASHES)]
        looks[method] = Look(colours[place % len(colours)], dashes)
    return looks


def label(text: str, longest: int = 36) -> str:
    """Return a name as a figure can show it: of a long one the beginning and the end.

    Example:
        >>> label("a-method-with-quite-a-long-name", 22)
        'a-method-wi…-long-name'
    """
    end = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[: longest - 1 - end]}…{text[-end:]}"


def legend(axes: Axes, handles: Sequence[Any]) -> None:
    """Put a legend above the axes in as many columns as fit; the figure grows with its rows."""
    if not handles:
        return
    figure = figure_of(axes)
    widest = max(len(str(handle.get_label())) for handle in handles)
    letters = 14 * figure.get_figwidth()
    columns = max(1, min(len(handles), int(letters) // (widest + 6)))
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.18 * (rows - 1))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)


def line(name: str, color: str = INK, **look: Any) -> Line2D:
    """Return a line for a legend."""
    return Line2D([], [], label=label(name), color=color, **look)


# --- axes ---


def count_epochs(axes: Axes) -> None:
    """Label the horizontal axis with whole epochs."""
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(
        MaxNLocator(integer=True, nbins=8, steps=[1, 2, 5, 10], min_n_ticks=1)
    )


def in_per_cent(axes: Axes, axis: str = "y") -> None:
    """Show shares in per cent."""
    formatter = FuncFormatter(lambda value, _: f"{100 * value:.4g} %")
    getattr(axes, f"{axis}axis").set_major_formatter(formatter)


def in_powers(axes: Axes, values: Iterable[float], ratio: float = _MOST_EVEN) -> None:
    """Use a logarithmic vertical axis for positive values over more than a ratio."""
    known = [value for value in values if math.isfinite(value)]
    if not known or min(known) <= 0 or max(known) < ratio * min(known):
        return
    axes.set_yscale("log")
    is_narrow = max(known) / min(known) < 30
    axes.yaxis.set_major_locator(LogLocator(subs=[1, 2, 5] if is_narrow else [1], numticks=7))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
