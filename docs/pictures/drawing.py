"""Small SVG drawings that follow the colours of the page they stand in."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

# Of the report pages. The site sets the same names by its own toggle.
LIGHT = {
    "ink": "#1f2430",
    "muted": "#5a6372",
    "rule": "#d9dee5",
    "soft": "#f4f6f8",
    "ours": "#0072b2",
    "other": "#6b6b6b",
    "warm": "#d55e00",
    "good": "#008a65",
}
DARK = {
    "ink": "#e4e7ec",
    "muted": "#a2abb8",
    "rule": "#353c47",
    "soft": "#1d2229",
    "ours": "#4ba6e2",
    "other": "#9aa0a8",
    "warm": "#f5834a",
    "good": "#35c79d",
}
WIDTH = 520
Point = tuple[float, float]


class Drawing:
    """An SVG of a fixed width, to which shapes are added from back to front.

    Args:
        height: in the same unit as `WIDTH`.
    """

    def __init__(self, height: int) -> None:
        self.height = height
        self._shapes: list[str] = []

    def line(
        self, points: Iterable[Point], colour: str, width: float = 2.0, dash: str = ""
    ) -> None:
        """Add a line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._shapes.append(
            f'<polyline points="{path}" fill="none" stroke="var(--{colour})" '
            f'stroke-width="{width}" stroke-linejoin="round"{dashes}/>'
        )

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """Add a filled rectangle."""
        self._shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="var(--{colour})"/>'
        )

    def dot(self, at: Point, colour: str, radius: float = 3.0, *, hollow: bool = False) -> None:
        """Add a circle."""
        fill = "none" if hollow else f"var(--{colour})"
        self._shapes.append(
            f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius}" fill="{fill}" '
            f'stroke="var(--{colour})" stroke-width="1"/>'
        )

    def cross(self, at: Point, colour: str, size: float = 4.5) -> None:
        """Add a cross: here something ends."""
        x, y = at
        self.line([(x - size, y - size), (x + size, y + size)], colour)
        self.line([(x - size, y + size), (x + size, y - size)], colour)

    def text(
        self,
        at: Point,
        words: str,
        colour: str = "ink",
        *,
        size: int = 14,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        """Add a line of text; `at` is where its baseline begins, ends or has its middle."""
        weight = ' font-weight="650"' if bold else ""
        self._shapes.append(
            f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" fill="var(--{colour})" font-size="{size}" '
            f'text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def save(self, path: Path) -> None:
        """Write the file."""
        light, dark = (
            "".join(f"--{name}:{value};" for name, value in colours.items())
            for colours in (LIGHT, DARK)
        )
        head = (
            f'<svg class="drawn" xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {WIDTH} {self.height}" font-family="system-ui, sans-serif">\n'
            f"<style>.drawn{{{light}}}"
            f"@media (prefers-color-scheme:dark){{.drawn{{{dark}}}}}</style>\n"
        )
        path.write_text(head + "\n".join(self._shapes) + "\n</svg>\n", encoding="utf-8")


def apart(heights: Sequence[float], least: float) -> list[float]:
    """Return heights for labels, in the same order, moved so that none covers another.

    Example:
        >>> apart([10.0, 11.0, 50.0], 15.0)
        [3.0, 18.0, 50.0]
    """
    order = sorted(range(len(heights)), key=heights.__getitem__)
    groups: list[list[int]] = []
    middles: list[float] = []
    for label in order:
        groups.append([label])
        middles.append(heights[label])
        while len(groups) > 1:
            room = (len(groups[-1]) + len(groups[-2])) / 2 * least
            if middles[-1] - middles[-2] >= room:
                break
            merged = groups[-2] + groups[-1]
            groups[-2:] = [merged]
            middles[-2:] = [sum(heights[label] for label in merged) / len(merged)]
    placed = dict.fromkeys(order, 0.0)
    for group, middle in zip(groups, middles, strict=True):
        for place, label in enumerate(group):
            placed[label] = middle + (place - (len(group) - 1) / 2) * least
    return [placed[label] for label in range(len(heights))]
