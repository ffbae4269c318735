"""Names at the ends of lines: apart from one another, in the order of the lines."""

import itertools

import pytest

from annealtune.studies.report.figures.end_labels import EndLabel, name_ends, short, spread
from annealtune.studies.report.figures.style import SERIES, blank, style


@pytest.mark.parametrize(
    "places", [[0.5] * 8, [0.0, 0.01, 0.5, 0.51, 0.52, 1.0, 1.0], [-3.0, 7.0, 0.5], [0.3]]
)
def test_names_are_apart_within_the_axes_and_in_order(places: list[float]) -> None:
    found = spread(places, 0.1)
    ordered = sorted(zip(places, found, strict=True))
    assert all(b[1] - a[1] >= 0.1 - 1e-9 for a, b in itertools.pairwise(ordered))
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in found)


def test_a_name_with_room_stays_where_it_is() -> None:
    assert spread([0.9, 0.1, 0.5], 0.1) == pytest.approx([0.9, 0.1, 0.5])


def test_more_names_than_room_share_it() -> None:
    assert spread([0.5] * 5, 0.4) == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])


def test_no_name_lies_upon_another_on_the_drawing() -> None:
    with style():
        axes = blank(2.0)
        axes.set_ylim(0, 1)
        name_ends(axes, [EndLabel(f"method {n}", SERIES[n], 0.5) for n in range(16)])
        axes.figure.draw_without_rendering()
        boxes = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.y0)
        width = axes.figure.bbox.width
    assert all(low.y1 <= high.y0 + 1.5 for low, high in itertools.pairwise(boxes))
    assert all(box.x1 <= width for box in boxes)


def test_an_end_beyond_the_axis_has_an_arrow() -> None:
    with style():
        axes = blank()
        axes.set_ylim(0, 1)
        name_ends(axes, [EndLabel("up", SERIES[0], 5.0), EndLabel("down", SERIES[1], -5.0)])
    assert [text.get_text() for text in axes.texts] == ["up ↑", "down ↓"]


def test_long_names_keep_both_ends() -> None:
    assert short("x" * 30 + "-1e-4").endswith("-1e-4")
    assert len(short("x" * 100)) == 22
