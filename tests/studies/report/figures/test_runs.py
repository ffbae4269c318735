"""The drawings of a run: its rate and its races by hand."""

import dataclasses
from collections.abc import Callable

import pytest
from matplotlib.axes import Axes

from annealtune.annealing import Setting
from annealtune.annealing.race import RaceInfo
from annealtune.studies.records import RunRecord, Study
from annealtune.studies.report.figures.runs import hero_panel, race_panels
from annealtune.studies.report.figures.style import blank, style

RACE = RaceInfo(
    step=0,
    minibatches=10,
    settings=tuple(Setting({"lr": rate}) for rate in (0.4, 0.1, 0.02)),
    scores=(3.0, 0.5, 0.8),
    dropped={0: "clearly worse at minibatch 3"},
    winner=1,
    reason="the lowest loss",
    rate=0.1,
    extra_steps=12,
    restarted=False,
    second=2,
    # Two of the ten minibatches were spoilt: no arm has a loss of them.
    losses=((2.0, 3.0, 900.0), (1.0, *[0.5] * 7), (1.0, *[0.8] * 7)),
)


def names(axes: Axes) -> list[str]:
    [legend] = axes.figure.legends
    return [text.get_text() for text in legend.get_texts()]


@pytest.fixture
def run(make_study: Callable[..., Study]) -> RunRecord:
    """Four epochs of five steps; the race takes two of them, then the rate decays."""
    [run] = make_study({"self-tuned": {0: {}}}).runs
    lines = [{**line, "rate": 0.1 / line["epoch"]} for line in run.metrics]
    lines[0]["races"] = [RACE.to_dict()]
    return dataclasses.replace(run, metrics=tuple(lines))


def draw_race(race: RaceInfo) -> Axes:
    [panel] = race_panels([race])
    with style():
        return panel.draw(blank())


def test_who_won_who_was_dropped_and_who_stayed() -> None:
    axes = draw_race(RACE)
    assert names(axes) == ["0.4 dropped", "0.1 won", "0.02"]
    assert axes.get_ylim()[1] == 3 * 2.0  # an arm that explodes does not flatten the others
    assert names(draw_race(dataclasses.replace(RACE, winner=None))) == [
        "0.4 dropped",
        "0.1",
        "0.02",
    ]
    assert race_panels([dataclasses.replace(RACE, losses=())]) == []


def test_long_races_are_drawn_as_means_of_five() -> None:
    losses = tuple(tuple(float(n) for n in range(40)) for _ in RACE.settings)
    [first, *_] = draw_race(dataclasses.replace(RACE, losses=losses, minibatches=40)).lines
    assert first.get_ydata()[:6] == pytest.approx([0, 0.5, 1, 1.5, 2, 3])


def test_the_rate_begins_after_the_race_and_every_arm_is_there(run: RunRecord) -> None:
    panel = hero_panel(run)
    assert panel is not None
    with style():
        axes = panel.draw(blank(panel.height))
    rate, *arms = [line for line in axes.lines if len(line.get_xdata()) > 1]
    assert rate.get_xdata() == pytest.approx([2, 3, 4])
    assert rate.get_ydata() == pytest.approx([0.1, 0.1 / 3, 0.1 / 4])
    spans = {line.get_ydata()[0]: list(line.get_xdata()) for line in arms}
    assert spans == {0.4: [0, pytest.approx(0.6)], 0.1: [0, 2], 0.02: [0, 2]}
    assert "rate, found 0.1" in names(axes)
    assert [each.get_ylabel() for each in axes.figure.axes] == ["accuracy", "loss", "learning rate"]


def test_before_the_first_epoch_there_is_nothing_to_draw(run: RunRecord) -> None:
    assert hero_panel(dataclasses.replace(run, metrics=())) is None
