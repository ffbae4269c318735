"""One look for all figures: readable small, in print, without colour vision, on light and dark."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.font_manager import findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .hover import HoverFigure

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# First the hues of Okabe and Ito, which also look different to colour-blind readers, dark enough
# for thin lines on white; then nine that are as far from these and from each other as there is room
# for. A page gives each one a second tone for a dark background.
SERIES = (
    "#0072b2",
    "#d55e00",
    "#008a65",
    "#b5548f",
    "#a87b00",
    "#5d4e9e",
    "#6b6b6b",
    "#a3122f",
    "#3f6b00",
    "#1c2a96",
    "#6b3a12",
    "#cc2fb0",
    "#00717f",
    "#7d22b8",
    "#d0506a",
    "#2d3b48",
)
# For one method at several rates, the lowest first.
RAMP = (
    "#cb7e04",
    "#c26b08",
    "#bb5501",
    "#b23f0a",
    "#a52b1d",
    "#951627",
    "#83002e",
    "#6d0033",
    "#580033",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# The second seven methods are dashed, the third seven dotted and dashed.
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1.2, 1.5)))
INK = "#333333"
FAINT = "#dddddd"
FONT = "DejaVu Sans"  # comes with matplotlib: the same letters on every machine
WIDTH, HEIGHT = 4.6, 3.0  # inches: two of them beside each other on a page, one on a phone
WIDE = 9.2  # a page's whole width
THIN: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.4}
THICK: dict[str, Any] = {"linewidth": 1.9}

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
    "svg.hashsalt": "annealtune",
    "pdf.fonttype": 3,  # the drawings of the letters used: quicker than a subset of the font
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the house style, whatever the reader's own matplotlib settings are."""
    with matplotlib.style.context(["default", _SETTINGS]):
        yield


# Rows of a legend that the usual height has room for, and inches for each further one.
ROWS_WITHIN, ROW_HEIGHT = 3, 0.2


def blank(height: float = HEIGHT, width: float = WIDTH) -> Axes:
    """Return empty axes on a figure of their own."""
    return HoverFigure(figsize=(width, height), layout="constrained").add_subplot()


def colour(methods: Sequence[str], method: str) -> str:
    """Return the colour of a method: the same in all figures of a study."""
    return SERIES[methods.index(method) % len(SERIES)]


def marker(methods: Sequence[str], method: str) -> str:
    """Return the marker of a method."""
    return MARKERS[methods.index(method) % len(MARKERS)]


def dashes(methods: Sequence[str], method: str) -> Any:
    """Return the line style of a method: where there are many, colours alone are too close."""
    return DASHES[methods.index(method) // len(MARKERS) % len(DASHES)]


def label(text: str) -> str:
    """Return a name as a figure can show it: on one line, and in letters that its font has.

    A legend leaves out what begins with an underscore; here it gets a space before it.
    """
    known = "".join(letter if ord(letter) in _letters() else "?" for letter in text)
    short = known if len(known) <= 36 else known[:35] + "…"
    return f" {short}" if short.startswith("_") else short


def legend(axes: Axes, handles: Sequence[Any]) -> None:
    """Put a legend above the axes, row by row, in as many columns as fit.

    The figure grows with it, so that many methods leave room for their curves.
    """
    if not handles:
        return
    widest = max(len(str(handle.get_label())) for handle in handles)
    figure = axes.get_figure(root=True)
    letters = 56 * (1.0 if figure is None else figure.get_figwidth() / WIDTH)
    columns = max(1, min(len(handles), int(letters) // (widest + 7)))
    starts = range(0, len(handles), columns)
    rows = [handles[start : start + columns] for start in starts]
    if figure is not None and len(rows) > ROWS_WITHIN:
        figure.set_figheight(figure.get_figheight() + (len(rows) - ROWS_WITHIN) * ROW_HEIGHT)
    # A legend is filled column by column: what is missing in a row keeps its place.
    nothing = Line2D([], [], linestyle="none", label=" ")
    filled = [(*row, *[nothing] * (columns - len(row))) for row in rows]
    ordered = [handle for column in zip(*filled, strict=True) for handle in column]
    axes.legend(
        handles=ordered,
        loc="lower left",
        bbox_to_anchor=(0, 1.01),
        ncols=columns,
        borderaxespad=0,
    )


def line(name: str, color: str = INK, **look: Any) -> Line2D:
    """Return a line for a legend."""
    return Line2D([], [], label=label(name), color=color, **look)


def count_epochs(axes: Axes) -> None:
    """Label the horizontal axis with whole epochs."""
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))


def power_of_ten(value: float) -> str:
    """Return a power of ten as it is written, other numbers with few digits.

    Example:
        >>> power_of_ten(1e-3), power_of_ten(1.0), power_of_ten(0.02)
        ('10⁻³', '1', '0.02')
    """
    exponent = math.log10(value)
    if round(exponent) == 0 or abs(exponent - round(exponent)) > 1e-9:
        return f"{value:g}"
    return "10" + str(round(exponent)).translate(_SUPERSCRIPTS)


def in_per_cent(axes: Axes, axis: str = "y") -> None:
    """Show shares in per cent."""
    formatter = FuncFormatter(lambda value, _: f"{100 * value:.4g} %")
    getattr(axes, f"{axis}axis").set_major_formatter(formatter)


def in_powers(axes: Axes) -> None:
    """Use a logarithmic vertical axis with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    low, high = axes.get_ylim()
    is_narrow = high / low < 20
    minor = FuncFormatter(lambda value, _: f"{value:g}" if is_narrow else "")
    axes.yaxis.set_minor_formatter(minor)


@cache
def _letters() -> frozenset[int]:
    charmap = get_font(findfont(FONT)).get_charmap()
    return frozenset(code for code in charmap if chr(code).isprintable())
