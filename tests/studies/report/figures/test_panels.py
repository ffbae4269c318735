"""Figures as files: what they hold, how small they are, the same bytes every time."""

import re
import xml.etree.ElementTree as ElementTree
from importlib.resources import files

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes

from annealtune.studies.records import Study
from annealtune.studies.report.figures import curves
from annealtune.studies.report.figures.compact_svg import relative
from annealtune.studies.report.figures.panels import Drawing, Panel, render
from annealtune.studies.report.figures.style import SERIES

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def drawing(three_methods: Study) -> Drawing:
    return render(loss_panel(three_methods))


def loss_panel(study: Study) -> Panel:
    def draw(axes: Axes) -> Axes:
        return curves.over_epochs(axes, study, study.methods, "validation_loss", "loss")

    return Panel("the-name", "A title & more", draw)


def test_the_files_are_what_they_say(drawing: Drawing) -> None:
    root = ElementTree.fromstring(drawing.svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("width") == "331.2pt"
    assert root.find(f"{SVG}title").text == "A title & more"
    assert drawing.pdf.startswith(b"%PDF-")
    assert b"/CreationDate" not in drawing.pdf
    assert b"date" not in drawing.svg.lower()


def test_the_same_records_give_the_same_bytes(three_methods: Study, drawing: Drawing) -> None:
    assert render(loss_panel(three_methods)) == drawing


def test_the_reader_s_own_settings_change_nothing(three_methods: Study, drawing: Drawing) -> None:
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "lines.linewidth": 9}):
        assert render(loss_panel(three_methods)) == drawing


def test_an_inline_figure_leaves_colours_to_the_page(drawing: Drawing) -> None:
    text = drawing.inline
    ElementTree.fromstring(text)
    assert not re.findall(r"#[0-9a-f]{6}\b", text)
    assert {f"var(--series-{n})" for n in (1, 2, 3)} <= set(
        re.findall(r"var\(--[a-z0-9-]+\)", text)
    )
    assert "currentColor" in text
    assert "font-family" not in text
    assert "<style" not in text
    assert "xmlns" not in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(ids)) == len(ids)
    assert all(each.startswith("the-name-") for each in ids)
    used = set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    assert used == set(ids)


def test_lines_keep_their_shape(three_methods: Study, drawing: Drawing) -> None:
    """The file's path data, followed point by point, is the line that was drawn."""
    paths = re.findall(r'd="(M[^"]+)"[^>]*stroke:#0072b2;stroke-width:1.9', drawing.svg.decode())
    points = follow(paths[0])
    assert len(points) == 4
    steps = np.diff([x for x, _ in points])
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)
    # 0.60, 0.50, 0.20, 0.30 less 0.01 for the mean of three seeds: heights in those proportions
    heights = [y for _, y in points]
    assert (heights[1] - heights[0]) / (heights[2] - heights[1]) == pytest.approx(
        0.1 / 0.3, abs=0.02
    )


def follow(path: str) -> list[tuple[float, float]]:
    start, *rest = path.replace("M", "").split("l")
    numbers = [float(each) for each in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", start)]
    points = [(numbers[0], numbers[1])]
    steps = [float(each) for each in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", "".join(rest))]
    for x, y in zip(steps[::2], steps[1::2], strict=True):
        points.append((points[-1][0] + x, points[-1][1] + y))
    return points


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
        assert [colours[f"series-{n}"] for n in range(1, 17)] == list(SERIES) or text is dark
        page = luminance(colours["page"])
        for name in colours.keys() - {"page", "rule", "soft", "grid"}:
            pair = sorted([page, luminance(colours[name])])
            is_line = name.startswith(("series", "ramp"))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) > (3 if is_line else 4.5), name


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("M 1.04 2 \nL 3.06 4.5 \nL 3 4 \nz\n", "M1 2l2.1 2.5-.1-.5z"),
        ("M 0 0 \nL 0.04 -0.04 \n", "M0 0l0 0"),
        ("M 1 1 \nL 2 2 \nM 5 5 \nL 6.54 4.5 \n", "M1 1l1 1M5 5l1.5-.5"),
        ("M 0 2.5 \nC 0.66 2.5 1.3 2.2 1.77 1.77 \nz\n", "M0 2.5C.7 2.5 1.3 2.2 1.8 1.8z"),
    ],
)
def test_paths_are_written_short(path: str, short: str) -> None:
    assert relative(path) == short


def test_rounding_errors_do_not_add_up() -> None:
    values = [(0.04 * k, 0.06 * k) for k in range(400)]
    path = "M " + " L ".join(f"{x} {y}" for x, y in values)
    assert follow(relative(path))[-1] == pytest.approx(values[-1], abs=0.051)
