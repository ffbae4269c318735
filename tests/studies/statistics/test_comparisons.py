"""Two methods over the same seeds: differences, intervals, tests, and their correction."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from annealtune.studies.records import Study
from annealtune.studies.statistics.comparisons import (
    bootstrap_interval,
    compare,
    holm,
    signed_rank_p_value,
)
from annealtune.studies.statistics.measures import Measure
from annealtune.studies.statistics.summaries import statistics_of

ACCURACY = Measure("last", "validation", "accuracy")
LOSS = Measure("last", "validation", "loss")


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
    assert comparison.smallest_p_value == 0.25


def test_a_lower_loss_wins() -> None:
    comparison = compare("a", "b", {0: 0.1, 1: 0.2}, {0: 0.3, 1: 0.1}, LOSS)
    assert (comparison.won, comparison.lost, comparison.tied) == (1, 1, 0)
    assert comparison.difference == pytest.approx(-0.05)


def test_a_comparison_seen_from_the_other_side() -> None:
    first, second = {0: 0.9, 1: 0.7, 2: 0.6}, {0: 0.8, 1: 0.75, 2: 0.5}
    there = compare("a", "b", first, second, ACCURACY)
    back = compare("b", "a", second, first, ACCURACY)
    assert there.reversed()._replace(low=None, high=None) == back._replace(low=None, high=None)
    assert (there.reversed().low, there.reversed().high) == (-there.high, -there.low)


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


@pytest.mark.parametrize("n", [1, 2, 3, 5, 10, 25, 50])
def test_the_signed_rank_test_agrees_with_scipy_where_nothing_ties(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.3, 1, size=n)
    expected = stats.wilcoxon(differences, method="exact").pvalue
    assert signed_rank_p_value(differences.tolist()) == pytest.approx(expected, rel=1e-10)


def test_the_signed_rank_test_at_its_edges() -> None:
    assert signed_rank_p_value([]) is None
    assert signed_rank_p_value([0.0, 0.0]) == 1
    assert signed_rank_p_value([0.1]) == 1
    assert signed_rank_p_value([1.0] * 10) == 2 / 2**10
    assert signed_rank_p_value([0.001 * k for k in range(1, 401)]) < 1e-60


def test_the_interval_agrees_with_scipy() -> None:
    differences = [0.3, -0.1, 0.25, 0.5, 0.05, 0.4]
    expected = stats.bootstrap((differences,), np.mean, rng=np.random.default_rng(0))
    assert bootstrap_interval(differences) == pytest.approx(tuple(expected.confidence_interval))
    assert bootstrap_interval(differences) == bootstrap_interval(differences)


@pytest.mark.parametrize("differences", [[], [0.1], [0.0, 0.0, 0.0], [0.2, 0.2]])
def test_no_interval_where_nothing_varies(differences: list[float]) -> None:
    assert bootstrap_interval(differences) == (None, None)


@pytest.mark.parametrize("differences", [[0.0, 1.0], [0.0, 0.0, 1.0], [1e-12, 2e-12], [5, 6e9]])
def test_an_interval_lies_within_what_was_seen(differences: list[float]) -> None:
    low, high = bootstrap_interval(differences)
    assert low is not None
    assert high is not None
    assert min(differences) <= low <= high <= max(differences)


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
    statistics = statistics_of(study, ACCURACY)
    assert statistics.comparison("a", "b").corrected_p_value == 2 / 2**6
    assert statistics.comparison("a", "b").is_significant
    against_failed = statistics.comparison("a", "c")
    assert (against_failed.n, against_failed.unpaired) == (0, 6)
    assert against_failed.p_value is None
    assert against_failed.difference is None
    assert not against_failed.is_significant


def test_three_comparisons_are_corrected(three_methods: Study) -> None:
    """Three seeds, each won: 0.25 is the least the test can say; three times that is 0.75."""
    comparison = statistics_of(three_methods, LOSS).comparison("sgd-sa", "scheduled-sgd")
    assert (comparison.won, comparison.p_value) == (3, 0.25)
    assert comparison.corrected_p_value == 0.75
