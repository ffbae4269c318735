"""Known answers: worked out by hand, by enumeration, by scipy, and the paper's own table."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from annealtune.studies.records import Study
from annealtune.studies.statistics.measures import Measure, score
from annealtune.studies.statistics.summaries import statistics_of, study_statistics

ACCURACY = Measure("last", "validation", "accuracy")
LOSS = Measure("last", "validation", "loss")
PAPER_LOSS = Measure("last", "validation", "paper_loss")


def test_a_summary_by_hand(make_study: Callable[..., Study]) -> None:
    accuracies = {0: 0.5, 1: 0.75, 2: 0.625, 7: 0.125}
    study = make_study({"sgd": {seed: {"accuracy": value} for seed, value in accuracies.items()}})
    [summary] = statistics_of(study, ACCURACY).summaries
    # mean 2.0 / 4; deviations 0, 0.25, 0.125, -0.375; their squares sum to 0.21875.
    assert summary.mean == 0.5
    assert summary.deviation == pytest.approx(math.sqrt(0.21875 / 3), rel=1e-12)
    assert summary.median == 0.5625
    assert (summary.best, summary.best_seed) == (0.75, 1)
    assert (summary.n, summary.planned, summary.failed) == (4, 4, 0)


def test_the_best_loss_is_the_lowest(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd": {0: {"loss": 0.5}, 1: {"loss": 0.25}, 2: {"loss": 0.25}}})
    [summary] = statistics_of(study, LOSS).summaries
    assert (summary.best, summary.best_seed) == (0.25, 1)


# --- a whole study --------------------------------------------------------------------------------


def test_the_paper_s_own_table(paper_study: Study) -> None:
    """What the paper says about its Table 1, and scipy about its p-values."""
    is_vgg = paper_study.experiment["model"] == "vgg16"
    accuracy, loss = (statistics_of(paper_study, each) for each in (ACCURACY, PAPER_LOSS))
    losses, accuracies = (each.comparison("sgd-sa", "scheduled-sgd") for each in (loss, accuracy))
    assert losses.won == 10
    assert losses.p_value == losses.corrected_p_value == 2 / 2**10
    assert (accuracies.won, accuracies.lost) == ((10, 0) if is_vgg else (7, 3))
    # 0.001231 is seed 1 of ResNet34; the paper prints 0.001240 as the best.
    assert loss.summary("sgd-sa").best == (0.001084 if is_vgg else 0.001231)
    assert accuracy.summary("sgd-sa").best == pytest.approx(0.8676 if is_vgg else 0.8411)
    assert accuracy.summary("scheduled-sgd").best == pytest.approx(0.8541 if is_vgg else 0.8258)
    ours, theirs = (
        np.array([score(run, ACCURACY) for run in paper_study.of(method)])
        for method in ("sgd-sa", "scheduled-sgd")
    )
    differences = ours - theirs
    expected = stats.wilcoxon(differences, method="exact").pvalue
    assert accuracies.p_value == pytest.approx(expected)
    assert accuracies.difference == pytest.approx(np.mean(differences))
    assert accuracies.is_significant == is_vgg


def test_failed_and_unfinished_runs_have_no_numbers(make_study: Callable[..., Study]) -> None:
    study = make_study(
        {
            "sgd": {
                0: {"accuracy": 0.9},
                1: {"accuracy": 0.1, "failure": "killed", "done": 2},
                2: {"accuracy": 0.1, "done": 3},
                3: None,
            },
            "adamw": {0: {"accuracy": 0.8}, 1: {"accuracy": 0.7}, 2: None, 3: None},
        }
    )
    statistics = statistics_of(study, ACCURACY)
    summary = statistics.summary("sgd")
    assert (summary.n, summary.failed, summary.planned) == (1, 1, 4)
    assert (summary.mean, summary.deviation) == (0.9, None)
    comparison = statistics.comparison("sgd", "adamw")
    assert (comparison.n, comparison.unpaired) == (1, 1)
    assert (comparison.low, comparison.high) == (None, None)
    assert statistics.common_seeds == (0,)


def test_a_failed_seed_does_not_improve_the_rank(make_study: Callable[..., Study]) -> None:
    """One method fails on the hard seed; over the seeds that both finished it is the worse one."""
    study = make_study(
        {
            "sgd": {0: {"accuracy": 0.90}, 1: {"failure": "killed"}},
            "adamw": {0: {"accuracy": 0.95}, 1: {"accuracy": 0.50}},
        }
    )
    statistics = statistics_of(study, ACCURACY)
    assert statistics.summary("sgd").mean > statistics.summary("adamw").mean  # type: ignore[operator]
    assert statistics.ranking == ("adamw", "sgd")


def test_methods_without_a_common_seed_are_ranked_by_their_own(
    make_study: Callable[..., Study],
) -> None:
    study = make_study(
        {"sgd": {0: {"accuracy": 0.8}, 1: None}, "adamw": {0: None, 1: {"accuracy": 0.9}}}
    )
    statistics = statistics_of(study, ACCURACY)
    assert statistics.common_seeds == ()
    assert statistics.ranking == ("adamw", "sgd")
    assert statistics.comparison("sgd", "adamw").n == 0


def test_measures_that_no_run_has_are_left_out(three_methods: Study) -> None:
    keys = [measure.key for measure in study_statistics(three_methods)]
    assert "last_test_accuracy" not in keys
    assert len(keys) == 8


def test_a_study_without_a_finished_run_has_no_statistics(make_study: Callable[..., Study]) -> None:
    assert study_statistics(make_study({"sgd": {0: None, 1: {"done": 1}}})) == {}
