"""What each method of a study reached, how two differ seed by seed, and whether by chance.

Nothing here draws or formats. A number that cannot be known is None: the deviation of one run, the
interval of one pair of seeds, the score of a run that failed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from scipy import stats

from annealtune.studies.records import Study

from .measures import DIGITS, MEASURES, Measure, score

SIGNIFICANCE_LEVEL = 0.05
RESAMPLES = 9999


class Summary(NamedTuple):
    """What one method reached by one measure.

    Attributes:
        method: its label.
        planned: how many runs the study has of it.
        n: how many finished with a number; the fields below are about those alone.
        mean: None without any.
        deviation: of the sample (divisor n - 1), None for fewer than two.
        best: over the seeds, None without any.
        best_seed: the seed that gave it, the first of several.
    """

    method: str
    planned: int
    n: int
    mean: float | None
    deviation: float | None
    best: float | None
    best_seed: int | None


class Comparison(NamedTuple):
    """How two methods differ over the seeds that both finished.

    Attributes:
        first: a label.
        second: a label.
        n: the pairs of runs.
        unpaired: seeds for which only one of the two has a number; they are left out.
        difference: the mean of first minus second; None without a pair.
        low: the lower end of its bootstrap interval; None for fewer than two different pairs.
        high: the upper end.
        won: the seeds for which the first is the better one.
        lost: the seeds for which the second is.
        tied: the seeds without a difference.
        p_value: of the two-sided Wilcoxon signed-rank test, exact.
        corrected_p_value: the same after Holm's correction for several comparisons.
    """

    first: str
    second: str
    n: int
    unpaired: int
    difference: float | None
    low: float | None
    high: float | None
    won: int
    lost: int
    tied: int
    p_value: float | None
    corrected_p_value: float | None

    @property
    def is_significant(self) -> bool:
        """Whether the corrected test finds a difference."""
        p_value = self.corrected_p_value
        return p_value is not None and p_value < SIGNIFICANCE_LEVEL


class Statistics(NamedTuple):
    """Everything about one measure.

    Attributes:
        measure: which.
        summaries: in the order of the study.
        comparisons: of every pair of methods, the better one first.
        ranking: the methods with a number, best mean first: over the seeds that all of them
            finished, over their own seeds if there is no such seed.
    """

    measure: Measure
    summaries: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    ranking: tuple[str, ...]

    def summary(self, method: str) -> Summary:
        """Return the summary of a method."""
        return next(summary for summary in self.summaries if summary.method == method)


def study_statistics(study: Study) -> dict[Measure, Statistics]:
    """Return the statistics of every measure for which a run has a number."""
    found = {measure: statistics_of(study, measure) for measure in MEASURES}
    return {measure: each for measure, each in found.items() if each.ranking}


def statistics_of(study: Study, measure: Measure) -> Statistics:
    """Return the statistics of one measure."""
    scores = {method: scores_of(study, method, measure) for method in study.methods}
    known = [values for values in scores.values() if values]
    common = tuple(seed for seed in study.seeds if known and all(seed in each for each in known))
    sign = -1 if measure.higher_is_better else 1
    means = {
        method: sign * round(fmean([values[seed] for seed in common] or values.values()), DIGITS)
        for method, values in scores.items()
        if values
    }
    ranking = tuple(sorted(means, key=lambda method: means[method]))
    pairs = itertools.combinations([*ranking, *(m for m in study.methods if m not in means)], 2)
    return Statistics(
        measure,
        tuple(_summarize(study, method, scores[method], measure) for method in study.methods),
        _corrected([compare(a, b, scores[a], scores[b], measure) for a, b in pairs]),
        ranking,
    )


def scores_of(study: Study, method: str, measure: Measure) -> dict[int, float]:
    """Return the numbers that a method reached, by seed; seeds without one are left out."""
    values = ((run.seed, score(run, measure)) for run in study.of(method))
    return {seed: value for seed, value in values if value is not None}


def compare(
    first: str,
    second: str,
    first_scores: Mapping[int, float],
    second_scores: Mapping[int, float],
    measure: Measure,
) -> Comparison:
    """Compare what two methods reached, by seed, over the seeds they have in common.

    Holm's correction comes later, when all comparisons are known.
    """
    seeds = sorted(first_scores.keys() & second_scores.keys())
    differences = [round(first_scores[seed] - second_scores[seed], DIGITS) for seed in seeds]
    sign = 1 if measure.higher_is_better else -1
    low, high = bootstrap_interval(differences)
    p_value = signed_rank_p_value(differences)
    return Comparison(
        first,
        second,
        n=len(seeds),
        unpaired=len(first_scores.keys() ^ second_scores.keys()),
        difference=fmean(differences) if differences else None,
        low=low,
        high=high,
        won=sum(sign * difference > 0 for difference in differences),
        lost=sum(sign * difference < 0 for difference in differences),
        tied=sum(difference == 0 for difference in differences),
        p_value=p_value,
        corrected_p_value=p_value,
    )


def bootstrap_interval(differences: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % bootstrap interval of a mean (BCa, 9,999 resamples, fixed seed).

    Returns:
        Low and high; None and None for fewer than two different values, of which no resample
        could say how far their mean may be off.

    Reference:
        Efron, Better Bootstrap Confidence Intervals, 1987; by `scipy.stats.bootstrap`.
    """
    if len(set(differences)) < 2:
        return None, None
    interval = stats.bootstrap(
        (np.array(differences),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=0.95,
        method="BCa",
        rng=np.random.default_rng(0),
    ).confidence_interval
    low, high = float(interval.low), float(interval.high)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else (None, None)


def signed_rank_p_value(differences: Sequence[float]) -> float | None:
    """Return the p-value of the two-sided Wilcoxon signed-rank test, exact also with ties.

    Zeros are dropped and equal sizes share their mean rank. Under the null hypothesis every
    difference has either sign with the same probability; the distribution of the sum of the
    positive ranks over all these signs is computed in full. (scipy's own ``method="exact"``
    assumes that there are no ties, and accuracies tie often.)

    Returns:
        A probability; 1 if all differences are zero, None if there are none.

    Example:
        >>> signed_rank_p_value([0.5, 1.0, 2.0])
        0.25
    """
    if not differences:
        return None
    signed = np.array([difference for difference in differences if difference])
    if not signed.size:
        return 1.0
    # Twice the mean ranks: whole numbers, so that sums can be compared and used as indices.
    ranks = np.rint(2 * stats.rankdata(np.abs(signed))).astype(int)
    probabilities = np.zeros(ranks.sum() + 1)
    probabilities[0] = 1.0
    for rank in ranks:
        shifted = np.zeros_like(probabilities)
        shifted[rank:] = probabilities[:-rank]
        probabilities = (probabilities + shifted) / 2
    observed = int(ranks[signed > 0].sum())
    tail = min(observed, int(ranks.sum()) - observed)
    return min(1.0, 2 * float(probabilities[: tail + 1].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of one family of tests by Holm's step-down rule; keep their order.

    Example:
        >>> holm([0.25, 0.125, 1.0])
        [0.5, 0.375, 1.0]
    """
    values = [0.0] * len(p_values)
    reached = 0.0
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    for position, index in enumerate(order):
        reached = max(reached, min(1.0, (len(p_values) - position) * p_values[index]))
        values[index] = reached
    return values


def _corrected(comparisons: list[Comparison]) -> tuple[Comparison, ...]:
    """Correct for the number of comparisons that could be made."""
    values = iter(holm([each.p_value for each in comparisons if each.p_value is not None]))
    return tuple(
        each if each.p_value is None else each._replace(corrected_p_value=next(values))
        for each in comparisons
    )


def _summarize(study: Study, method: str, scores: Mapping[int, float], measure: Measure) -> Summary:
    runs, values = study.of(method), list(scores.values())
    best = measure.best(values) if values else None
    return Summary(
        method,
        planned=len(runs),
        n=len(values),
        mean=fmean(values) if values else None,
        deviation=stdev(values) if len(values) > 1 else None,
        best=best,
        best_seed=next((seed for seed, value in scores.items() if value == best), None),
    )
