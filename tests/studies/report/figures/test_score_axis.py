"""The axis of scores: every score in it, the better ones up, ratios where they differ much."""

import pytest

from annealtune.studies.report.figures.score_axis import fit_score_axis
from annealtune.studies.report.figures.style import blank, style
from annealtune.studies.statistics.measures import Measure

ACCURACY = Measure("best", "test", "accuracy")
LOSS = Measure("best", "test", "loss")


def fitted(measure, scores, axis="y"):
    with style():
        axes = blank()
        fit_score_axis(axes, measure, scores, axis)
    return axes


def heights(axes, scores):
    place = (axes.transScale + axes.transLimits).transform
    return [place((0.5, score))[1] for score in scores]


@pytest.mark.parametrize(
    ("measure", "scores"),
    [
        (ACCURACY, [0.1, 0.95, 0.97]),
        (ACCURACY, [0.95, 0.97]),
        (ACCURACY, [0.5, 1.0]),
        (ACCURACY, [1.0, 1.0]),
        (ACCURACY, [0.0]),
        (LOSS, [0.01, 3.0]),
        (LOSS, [1.0, 1.1]),
        (LOSS, [-1.0, 5.0]),
        (LOSS, [0.0, 0.0]),
    ],
)
def test_every_score_is_within_and_the_better_one_higher(measure, scores):
    found = heights(fitted(measure, scores), scores)
    assert all(0 <= height <= 1 for height in found)
    ranked = sorted(scores, reverse=not measure.higher_is_better)
    assert heights(fitted(measure, scores), ranked) == sorted(found)


def test_equal_ratios_of_an_error_or_a_loss_have_equal_lengths():
    low, middle, high = heights(fitted(ACCURACY, [0.2, 0.98]), [0.6, 0.8, 0.9])
    assert middle - low == pytest.approx(high - middle)
    low, middle, high = heights(fitted(LOSS, [0.01, 1.0]), [0.4, 0.2, 0.1])
    assert middle - low == pytest.approx(high - middle)


def test_scores_that_hardly_differ_are_on_an_even_axis():
    for measure, scores in ((ACCURACY, [0.95, 0.97]), (LOSS, [1.0, 1.5])):
        assert fitted(measure, scores).get_yscale() == "linear"


def test_ticks_are_round_and_few():
    ticks = fitted(ACCURACY, [0.05, 0.9999]).get_yticks()
    assert 3 <= len(ticks) <= 8
    assert all(round(100 * tick, 4) == pytest.approx(100 * tick) for tick in ticks)


@pytest.mark.parametrize(
    ("measure", "scores"),
    [(ACCURACY, [0.1, 0.95, 1.0]), (ACCURACY, [0.95, 0.97]), (LOSS, [0.1, 9])],
)
def test_the_horizontal_axis_is_the_vertical_one_turned(measure, scores):
    upright, level = fitted(measure, scores), fitted(measure, scores, "x")
    assert level.get_xlim() == upright.get_ylim()
    assert level.get_ylim() == (0, 1)
    place = (level.transScale + level.transLimits).transform
    across = [place((score, 0.5))[0] for score in scores]
    assert across == pytest.approx(heights(upright, scores))


def test_a_narrow_axis_has_few_ticks_of_a_loss_or_an_accuracy():
    for measure, scores in ((ACCURACY, [0.05, 0.9999]), (LOSS, [1e-4, 90.0]), (LOSS, [2.1, 6.5])):
        with style():
            axes = blank()
            axes.get_figure(root=True).set_figwidth(4.6)
            fit_score_axis(axes, measure, scores, "x")
        assert 2 <= len(axes.get_xticks()) <= 4
