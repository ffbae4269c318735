"""A score against its cost, by hand."""

import pytest

from annealtune.studies.records import Study
from annealtune.studies.report.figures import score_cost
from annealtune.studies.report.figures.style import blank, style


def test_accuracy_against_cost(three_methods: Study) -> None:
    """After an epoch of 5 steps: 10 forwards and 5 backwards cost 20; 5 and 5 cost 15."""
    with style():
        axes = score_cost.score_against_passes(blank(), three_methods, "accuracy")
        losses = score_cost.score_against_passes(blank(), three_methods, "loss")
    ours, end, plain = axes.lines[:3]
    assert ours.get_xdata() == pytest.approx([20, 40, 60, 80])
    assert ours.get_ydata()[-1] == pytest.approx(0.91)
    assert end.get_xdata() == pytest.approx([80])
    assert plain.get_xdata() == pytest.approx([15, 30, 45, 60])
    assert losses.lines[0].get_ydata()[-1] == pytest.approx(0.29)
