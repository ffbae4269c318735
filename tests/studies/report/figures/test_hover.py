"""The values of points: at the place where matplotlib draws them, and only where they are seen."""

import json
import re

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from annealtune.studies.report.figures.hover import marks, show_values
from annealtune.studies.report.figures.panels import Panel, render
from annealtune.studies.report.figures.style import SERIES, blank


def draw(axes: Axes) -> Axes:
    axes.plot([1, 2, 4], [10, 20, 15], color=SERIES[0])
    axes.set_ylim(9, 18)
    show_values(axes, "it's <b>", SERIES[0], [1, 2, 4], [10, 20, 15], list("abc"), is_line=True)
    show_values(axes, "lost", SERIES[1], [float("nan")], [10], ["never seen"])
    return axes


def points(inline: str) -> list[list[object]]:
    [text] = re.findall(r"data-points='([^']*)'", inline)
    for escape, letter in (("&#39;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(escape, letter)
    found: list[list[object]] = json.loads(text)
    return found


def test_points_are_where_the_line_is() -> None:
    drawing = render(Panel("hover", "Hover", draw), files=False)
    [[name, colour, is_line, xs, ys, texts]] = points(drawing.inline)
    assert (name, colour, is_line) == ("it's <b>", "var(--series-1)", 1)
    assert texts == ["a", "c"]  # the second is above the axis
    path = re.search(r'd="M([\d.]+) ([\d.]+)l[^"]*"[^>]*var\(--series-1\)', drawing.inline)
    assert path is not None
    assert [xs[0], ys[0]] == pytest.approx([float(path[1]), float(path[2])], abs=0.11)


def test_without_files_there_are_none() -> None:
    drawing = render(Panel("hover", "Hover", draw), files=False)
    assert (drawing.svg, drawing.pdf) == (b"", b"")
    assert b"data-points" not in render(Panel("hover", "Hover", draw)).svg


def test_a_wide_panel_has_a_narrow_form_with_places_of_its_own() -> None:
    drawing = render(Panel("hover", "Hover", draw, is_wide=True), files=False)
    wide, narrow = re.findall(r"<svg.*?</svg>", drawing.inline, re.DOTALL)
    assert "class='wide'" in wide
    assert "class='narrow'" in narrow
    assert points(wide)[0][3][1] > points(narrow)[0][3][1] > 200
    assert not set(re.findall(r'id="([^"]+)"', wide)) & set(re.findall(r'id="([^"]+)"', narrow))


def test_other_figures_are_left_alone() -> None:
    axes = Figure().add_subplot()
    draw(axes)
    assert marks(axes.figure, {}) == ""


def test_every_point_has_a_text() -> None:
    with pytest.raises(ValueError, match="of one length"):
        show_values(blank(), "x", SERIES[0], [1, 2], [1, 2], ["one"])
