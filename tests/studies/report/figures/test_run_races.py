"""The drawing of a race in the page of a run."""

import pytest
from matplotlib.figure import Figure

from annealtune.annealing import Setting
from annealtune.annealing.race_info import RaceInfo
from annealtune.studies.report.figures.run_races import race_panels


@pytest.mark.parametrize(("winner", "crosses"), [(0, [2]), (None, [2, 4, 4])])
def test_a_cross_is_where_an_arm_was_dropped_or_all_broke(winner, crosses):
    """Two of the six minibatches were spoilt for all and have no losses."""
    race = RaceInfo(
        step=0,
        minibatches=6,
        settings=tuple(Setting({"lr": rate}) for rate in (0.1, 0.2, 0.4)),
        scores=(0.6, 1.4, 3.0),
        dropped={2: "clearly worse"},
        winner=winner,
        reason="the best",
        rate=0.1,
        extra_steps=6,
        restarted=False,
        losses=((2.0, 1.5, 1.0, 0.25), (2.0, 1.75, 1.5, 1.25), (2.0, 3.0)),
    )
    ((panel, _),) = race_panels([race])
    axes = Figure().subplots()
    panel.draw(axes)
    found = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "x"]
    assert sorted(found) == crosses
