"""Figures as files and on a page: the same bytes every time, colours and points for the page."""

import html
import json
import re
import xml.etree.ElementTree as ElementTree
from importlib.resources import files

import matplotlib
import pytest
from matplotlib.axes import Axes

from annealtune.studies.report.figures.panels import Drawing, Panel, render
from annealtune.studies.report.figures.style import RAMP, SERIES

SVG = "{http://www.w3.org/2000/svg}"


def draw(axes: Axes) -> Axes:
    axes.plot([1, 2, 4], [10.123456, 20, 15], color=SERIES[0], label="it's <b>")
    axes.plot([1, 2], [11, 12], "o", color=SERIES[1])
    axes.text(1, 10, "0.123456 <i>")
    axes.set(ylim=(9, 18), xlabel="epoch")
    return axes


PANEL = Panel("the-name", "A title & more", draw)


@pytest.fixture(scope="module")
def drawing() -> Drawing:
    return render(PANEL)


def test_the_files_are_what_they_say(drawing: Drawing) -> None:
    root = ElementTree.fromstring(drawing.svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("width") == "331.2pt"
    assert drawing.pdf.startswith(b"%PDF-")
    assert b"/CreationDate" not in drawing.pdf
    assert b"date" not in drawing.svg.lower()


def test_neither_the_hour_nor_the_reader_s_settings_change_a_byte(drawing: Drawing) -> None:
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "lines.linewidth": 9}):
        assert render(PANEL) == drawing


def test_an_inline_figure_leaves_colours_to_the_page(drawing: Drawing) -> None:
    text = drawing.inline
    ElementTree.fromstring(text)
    assert not re.findall(r"#[0-9a-f]{6}\b", text)
    assert {"var(--series-1)", "var(--series-2)", "currentColor"} <= set(
        re.findall(r"var\(--[a-z0-9-]+\)|currentColor", text)
    )
    assert "0.123456 &lt;i&gt;" in text  # what is written stays, places are rounded
    assert not re.search(r' d="[^"]*\.\d\d', text)


def test_ids_are_of_one_drawing_alone(drawing: Drawing) -> None:
    ids = re.findall(r'\bid="([^"]+)"', drawing.inline)
    assert len(set(ids)) == len(ids) > 0
    other = render(PANEL._replace(name="other", is_wide=True), files=False)
    wide, narrow = re.findall(r"<svg.*?</svg>", other.inline, re.DOTALL)
    for text in (wide, narrow):
        assert not set(ids) & set(re.findall(r'\bid="([^"]+)"', text))
    assert not set(re.findall(r'id="([^"]+)"', wide)) & set(re.findall(r'id="([^"]+)"', narrow))
    assert (other.svg, other.pdf) == (b"", b"")


def test_points_of_lines_with_a_name_are_where_the_line_is(drawing: Drawing) -> None:
    [text] = re.findall(r"data-points='([^']*)'", drawing.inline)
    [[name, colour, xs, ys, texts]] = json.loads(html.unescape(text))
    assert (name, colour) == ("it's <b>", "var(--series-1)")
    assert texts == ["epoch 1: 10.12", "epoch 4: 15"]  # the second is above the axis
    path = re.search(r'd="M ([\d.]+) ([\d.]+) [^"]*"[^>]*var\(--series-1\)', drawing.inline)
    assert path is not None
    assert [xs[0], ys[0]] == pytest.approx([float(path[1]), float(path[2])], abs=0.11)
    assert b"data-points" not in drawing.svg


def luminance(colour: str) -> float:
    """How bright a colour is, as WCAG defines it."""
    shares = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (s / 12.92 if s <= 0.03928 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_line_stands_out_on_light_and_dark() -> None:
    sheet = files("annealtune.studies.report") / "templates" / "report.css"
    light, dark = sheet.read_text(encoding="utf-8").split("@media (prefers-color-scheme: dark)")
    for text in (light, dark):
        colours = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", text))
        lines = [f"series-{n}" for n in range(1, 17)] + [f"ramp-{n}" for n in range(1, 10)]
        assert [colours[name] for name in lines] == [*SERIES, *RAMP] or text is dark
        page = luminance(colours["page"])
        for name in colours.keys() - {"page", "rule", "soft", "grid"}:
            pair = sorted([page, luminance(colours[name])])
            assert (pair[1] + 0.05) / (pair[0] + 0.05) > (3 if name in lines else 4.5), name
