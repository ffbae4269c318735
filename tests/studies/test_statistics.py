"""Known answers: worked out by hand, by enumeration, by scipy, and the paper's own table."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from annealtune.studies.records import Study
from annealtune.studies.statistics import (
    MEASURES,
    Measure,
    compare,
    holm,
    main_measure,
    mean_interval,
    rate_found,
    score,
    scores_of,
    signed_rank_p_value,
    statistics_of,
    study_statistics,
    sweeps_of,
)

ACCURACY = Measure("last", "validation", "accuracy")
LOSS = Measure("last", "validation", "loss")
PAPER_LOSS = Measure("last", "validation", "paper_loss")


def test_every_measure_is_read_from_its_place(three_methods: Study) -> None:
    run = three_methods.of("sgd-sa")[1]
    scores = {measure.key: score(run, measure) for measure in MEASURES}
    assert scores == {
        "last_validation_accuracy": pytest.approx(0.91),
        "last_validation_loss": pytest.approx(0.29),
        "last_validation_paper_loss": pytest.approx(0.029),
        "best_validation_accuracy": pytest.approx(0.92),
        "best_validation_loss": pytest.approx(0.19),
        "best_validation_paper_loss": pytest.approx(0.019),
        "best_test_accuracy": pytest.approx(0.89),
        "best_test_loss": pytest.approx(0.34),
    }


def test_the_test_set_ranks_where_it_chose_nothing(
    three_methods: Study, make_study: Callable[..., Study]
) -> None:
    assert main_measure(three_methods) == Measure("best", "test", "accuracy")
    study = make_study({"sgd": {3: {"accuracy": 0.5}}}, experiment={"validate_on": "test"})
    assert main_measure(study) == ACCURACY


def test_a_missing_metric_is_no_number(make_study: Callable[..., Study]) -> None:
    study = make_study(
        {
            "sgd": {
                0: {"loss": None},
                1: {"loss": 0.5, "result": {"test_accuracy": None, "test_loss": None}},
                2: {"loss": 0.25, "metric": {"validation_paper_loss": None}},
            }
        }
    )
    assert list(scores_of(study, "sgd", LOSS)) == [1, 2]
    assert statistics_of(study, LOSS).summaries["sgd"].mean == 0.375
    assert list(scores_of(study, "sgd", PAPER_LOSS)) == [1]
    assert list(scores_of(study, "sgd", Measure("best", "test", "accuracy"))) == [0, 2]
    assert list(scores_of(study, "sgd", Measure("best", "test", "loss"))) == [2]


@pytest.mark.parametrize(
    ("measure", "value", "text", "difference"),
    [
        (ACCURACY, -0.00001, "0.00 %", "0.00 points"),
        (ACCURACY, -0.0123, "\N{MINUS SIGN}1.23 %", "\N{MINUS SIGN}1.23 points"),
        (LOSS, 0.56789, "0.5679", "+0.5679"),
        (LOSS, 0.00001234, "1.23e\N{MINUS SIGN}05", "+1.23e\N{MINUS SIGN}05"),
        (LOSS, 0.0, "0.0000", "0.0000"),
    ],
)
def test_numbers_as_they_are_shown(
    measure: Measure, value: float, text: str, difference: str
) -> None:
    assert measure.text(value) == text
    assert measure.difference(value) == difference


# --- one method at several rates ---


def study_of(make_study: Callable[..., Study], configs: dict[str, dict[str, Any]]) -> Study:
    methods = [{"label": label, "config": config} for label, config in configs.items()]
    return make_study({label: {0: None} for label in configs}, methods=methods)


def config(method: str, lr: Any, **options: Any) -> dict[str, Any]:
    return {"method": method, "epochs": 3, method: {"lr": lr, **options}}


def test_kinds_at_three_or_more_rates(make_study: Callable[..., Study]) -> None:
    study = study_of(
        make_study,
        {
            "b": config("adamw", 0.1),
            "a": config("adamw", 0.001),
            "s1": config("sgd", 1),
            "c": config("adamw", 0.01),
            "s2": config("sgd", 2.0),
            "s3": config("sgd", 3.0),
            "d": config("adamw", 1.0),
            "other": config("adamw", 1.0, weight_decay=0.5),
            "h": config("sgd-sa", [0.1, 0.2, 0.3]),
        },
    )
    first, second = sweeps_of(study)
    assert (first.kind, list(first.labels.items())) == (
        "adamw",
        [(0.001, "a"), (0.01, "c"), (0.1, "b"), (1.0, "d")],
    )
    assert (second.kind, list(second.labels)) == ("sgd", [1.0, 2.0, 3.0])


def test_two_rates_are_no_sweep(make_study: Callable[..., Study]) -> None:
    assert sweeps_of(study_of(make_study, {"a": config("sgd", 0.1), "b": config("sgd", 1.0)})) == []


def test_the_rate_of_the_last_race(make_study: Callable[..., Study]) -> None:
    races = [{"rate": 0.3}, {"rate": 0.1}]
    run = {"metric": {"races": races, "rate": 1e-9}}
    study = make_study({"self-tuned": {0: run}, "sgd": {0: {}}})
    assert [rate_found(run) for run in study.runs] == [pytest.approx(0.1), None]


# --- each method ---


def test_a_summary_by_hand(make_study: Callable[..., Study]) -> None:
    accuracies = {0: 0.5, 1: 0.75, 2: 0.625, 7: 0.125}
    runs = {seed: {"accuracy": value, "loss": 1 - value} for seed, value in accuracies.items()}
    study = make_study({"sgd": runs})
    summary = statistics_of(study, ACCURACY).summaries["sgd"]
    # mean 2.0 / 4; deviations 0, 0.25, 0.125, -0.375; their squares sum to 0.21875.
    assert summary.mean == 0.5
    assert summary.deviation == pytest.approx(math.sqrt(0.21875 / 3), rel=1e-12)
    assert summary.best == 0.75
    assert statistics_of(study, LOSS).summaries["sgd"].best == 0.25


# --- a whole study --------------------------------------------------------------------------------


def test_the_paper_s_own_table(paper_study: Study) -> None:
    """What the paper says about its Table 1, and scipy about its p-values."""
    is_vgg = paper_study.experiment["model"] == "vgg16"
    accuracy, loss = (statistics_of(paper_study, each) for each in (ACCURACY, PAPER_LOSS))
    [losses], [accuracies] = loss.comparisons, accuracy.comparisons
    assert losses[:2] == accuracies[:2] == ("sgd-sa", "scheduled-sgd")
    assert losses.won == 10
    assert losses.p_value == losses.corrected_p_value == 2 / 2**10
    assert (accuracies.won, accuracies.lost) == ((10, 0) if is_vgg else (7, 3))
    # 0.001231 is seed 1 of ResNet34; the paper prints 0.001240 as the best.
    assert loss.summaries["sgd-sa"].best == (0.001084 if is_vgg else 0.001231)
    assert accuracy.summaries["sgd-sa"].best == pytest.approx(0.8676 if is_vgg else 0.8411)
    assert accuracy.summaries["scheduled-sgd"].best == pytest.approx(0.8541 if is_vgg else 0.8258)
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
    assert statistics.summaries["sgd"] == (0.9, None, 0.9)
    [comparison] = statistics.comparisons
    assert (comparison.n, comparison.unpaired) == (1, 1)
    assert (comparison.low, comparison.high) == (None, None)


def test_a_failed_seed_does_not_improve_the_rank(make_study: Callable[..., Study]) -> None:
    """One method fails on the hard seed; over the seeds that both finished it is the worse one."""
    study = make_study(
        {
            "sgd": {0: {"accuracy": 0.90}, 1: {"failure": "killed"}},
            "adamw": {0: {"accuracy": 0.95}, 1: {"accuracy": 0.50}},
        }
    )
    statistics = statistics_of(study, ACCURACY)
    assert statistics.summaries["sgd"].mean > statistics.summaries["adamw"].mean  # type: ignore[operator]
    assert statistics.ranking == ("adamw", "sgd")


def test_methods_without_a_common_seed_are_ranked_by_their_own(
    make_study: Callable[..., Study],
) -> None:
    study = make_study(
        {"sgd": {0: {"accuracy": 0.8}, 1: None}, "adamw": {0: None, 1: {"accuracy": 0.9}}}
    )
    statistics = statistics_of(study, ACCURACY)
    assert statistics.ranking == ("adamw", "sgd")
    assert statistics.comparisons[0].n == 0


def test_measures_that_no_run_has_are_left_out(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd": {0: {"accuracy": None}, 1: {"done": 1}}})
    assert {measure.quantity for measure in study_statistics(study)} == {"loss", "paper_loss"}


# --- two methods over the same seeds ---


def by_enumeration(differences: Sequence[float]) -> float:
    """The signed-rank test over all signs, written from its definition."""
    sizes = [abs(difference) for difference in differences if difference]
    ranks = [
        sum(other < size for other in sizes) + (sum(other == size for other in sizes) + 1) / 2
        for size in sizes
    ]
    centre = sum(ranks) / 2
    signs = [difference > 0 for difference in differences if difference]
    observed = abs(sum(itertools.compress(ranks, signs)) - centre)
    patterns = list(itertools.product([False, True], repeat=len(ranks)))
    as_far = [abs(sum(itertools.compress(ranks, each)) - centre) >= observed for each in patterns]
    return sum(as_far) / len(patterns)


def test_a_comparison_by_hand() -> None:
    first = {0: 0.9, 1: 0.8, 2: 0.7, 3: 0.6}
    second = {0: 0.8, 1: 0.8, 2: 0.5, 4: 0.9}
    comparison = compare("a", "b", first, second, ACCURACY)
    assert comparison.n == 3
    assert comparison.unpaired == 2  # seeds 3 and 4
    assert comparison.difference == pytest.approx(0.1)
    assert (comparison.won, comparison.lost, comparison.tied) == (2, 0, 1)
    assert comparison.p_value == 0.5  # ranks 1 and 2, both positive: 1 of 4 sign patterns, twice


def test_a_lower_loss_wins() -> None:
    comparison = compare("a", "b", {0: 0.1, 1: 0.2}, {0: 0.3, 1: 0.1}, LOSS)
    assert (comparison.won, comparison.lost, comparison.tied) == (1, 1, 0)


def test_equal_scores_are_ties_also_after_rounding() -> None:
    """0.3 - 0.1 and 0.4 - 0.2 differ in the last bit: they have the same rank."""
    assert 0.3 - 0.1 != 0.4 - 0.2
    comparison = compare("a", "b", {0: 0.3, 1: 0.2}, {0: 0.1, 1: 0.4}, ACCURACY)
    assert comparison.difference == 0
    assert comparison.p_value == 1


@pytest.mark.parametrize("seed", range(8))
def test_the_signed_rank_test_is_exact_with_ties_and_zeros(seed: int) -> None:
    generator = np.random.default_rng(seed)
    differences = generator.integers(-3, 5, size=9).astype(float).tolist()
    assert signed_rank_p_value(differences) == pytest.approx(by_enumeration(differences), abs=1e-14)


def test_the_signed_rank_test_at_its_edges() -> None:
    assert signed_rank_p_value([]) is None
    assert signed_rank_p_value([0.0, 0.0]) == 1
    assert signed_rank_p_value([0.1]) == 1
    assert signed_rank_p_value([1.0] * 10) == 2 / 2**10
    assert signed_rank_p_value([0.001 * k for k in range(1, 401)]) < 1e-60


def test_the_interval_is_that_of_the_paired_t_test() -> None:
    for differences in ([0.3, -0.1, 0.25, 0.5, 0.05, 0.4], [0.0, 1.0]):
        expected = stats.ttest_1samp(differences, 0).confidence_interval()
        assert mean_interval(differences) == pytest.approx(tuple(expected))


@pytest.mark.parametrize("differences", [[], [0.1], [0.0, 0.0, 0.0], [0.2, 0.2]])
def test_no_interval_where_nothing_varies(differences: list[float]) -> None:
    assert mean_interval(differences) == (None, None)


@pytest.mark.parametrize(
    ("values", "corrected"),
    [
        ([], []),
        ([0.03], [0.03]),
        # Sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1 raised to the one before it.
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.6, 0.5, 0.9], [1.0, 1.0, 1.0]),
        ([0.02, 0.02], [0.04, 0.04]),
    ],
)
def test_holm_by_hand(values: list[float], corrected: list[float]) -> None:
    assert holm(values) == pytest.approx(corrected)


def test_only_comparisons_that_could_be_made_are_corrected_for(
    make_study: Callable[..., Study],
) -> None:
    study = make_study(
        {
            "a": {s: {"accuracy": 0.9 + 0.001 * s * s} for s in range(6)},
            "b": {s: {"accuracy": 0.8} for s in range(6)},
            "c": {s: {"failure": "out of memory", "done": 1} for s in range(6)},
        },
        kinds={"a": "sgd", "b": "sgd", "c": "sgd"},
    )
    [comparison] = statistics_of(study, ACCURACY).comparisons
    assert comparison.corrected_p_value == 2 / 2**6
    assert comparison.is_significant
