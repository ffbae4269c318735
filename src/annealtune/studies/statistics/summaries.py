"""Numbers about a study: what each method reached, and how methods differ seed by seed.

Nothing here draws or formats. A number that cannot be known is None: the deviation of one run, the
interval of one pair of seeds, the score of a run that failed.
"""

import itertools
from collections.abc import Mapping
from statistics import fmean, median, stdev
from typing import NamedTuple

from annealtune.studies.records import Study

from .comparisons import Comparison, compare, corrected
from .measures import DIGITS, MEASURES, Measure, score


class Summary(NamedTuple):
    """What one method reached by one measure.

    Attributes:
        method: its label.
        planned: how many runs the study has of it.
        failed: how many of them failed.
        n: how many finished with a number; the fields below are about those alone.
        mean: None without any.
        deviation: of the sample (divisor n - 1), None for fewer than two.
        median: None without any.
        best: over the seeds, None without any.
        best_seed: the seed that gave it, the first of several.
    """

    method: str
    planned: int
    failed: int
    n: int
    mean: float | None
    deviation: float | None
    median: float | None
    best: float | None
    best_seed: int | None


class Statistics(NamedTuple):
    """Everything about one measure, methods in the order of the study."""

    measure: Measure
    summaries: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    ranking: tuple[str, ...]
    """The methods with a number, best mean first: over the seeds that all of them finished, over
    their own seeds if there is no such seed."""
    common_seeds: tuple[int, ...]

    @property
    def is_balanced(self) -> bool:
        """Whether all methods with a number have one for the same seeds: their means compare."""
        return all(each.n in (0, len(self.common_seeds)) for each in self.summaries)

    def summary(self, method: str) -> Summary:
        """Return the summary of a method."""
        return next(summary for summary in self.summaries if summary.method == method)

    def comparison(self, first: str, second: str) -> Comparison:
        """Return the comparison of two methods, seen from the first."""
        for comparison in self.comparisons:
            if (comparison.first, comparison.second) == (first, second):
                return comparison
            if (comparison.first, comparison.second) == (second, first):
                return comparison.reversed()
        raise ValueError(f"there is no comparison of {first!r} and {second!r}")


def study_statistics(study: Study) -> dict[Measure, Statistics]:
    """Return the statistics of every measure for which a run has a number."""
    found = {measure: statistics_of(study, measure) for measure in MEASURES}
    return {measure: each for measure, each in found.items() if each.ranking}


def statistics_of(study: Study, measure: Measure) -> Statistics:
    """Return the statistics of one measure."""
    scores = {method: scores_of(study, method, measure) for method in study.methods}
    common = _common_seeds(study, scores)
    pairs = itertools.combinations(study.methods, 2)
    return Statistics(
        measure,
        tuple(_summarize(study, method, scores[method], measure) for method in study.methods),
        corrected([compare(a, b, scores[a], scores[b], measure) for a, b in pairs]),
        _ranking(scores, common, measure),
        common,
    )


def scores_of(study: Study, method: str, measure: Measure) -> dict[int, float]:
    """Return the numbers that a method reached, by seed; seeds without one are left out."""
    values = ((run.seed, score(run, measure)) for run in study.of(method))
    return {seed: value for seed, value in values if value is not None}


def _summarize(study: Study, method: str, scores: Mapping[int, float], measure: Measure) -> Summary:
    runs, values = study.of(method), list(scores.values())
    best = measure.best(values) if values else None
    return Summary(
        method,
        planned=len(runs),
        failed=sum(run.status == "failed" for run in runs),
        n=len(values),
        mean=fmean(values) if values else None,
        deviation=stdev(values) if len(values) > 1 else None,
        median=median(values) if values else None,
        best=best,
        best_seed=next((seed for seed, value in scores.items() if value == best), None),
    )


def _common_seeds(study: Study, scores: Mapping[str, Mapping[int, float]]) -> tuple[int, ...]:
    known = [values for values in scores.values() if values]
    return tuple(seed for seed in study.seeds if known and all(seed in each for each in known))


def _ranking(
    scores: Mapping[str, Mapping[int, float]], common: tuple[int, ...], measure: Measure
) -> tuple[str, ...]:
    sign = -1 if measure.higher_is_better else 1
    means = {
        method: sign * round(fmean([values[s] for s in common] or values.values()), DIGITS)
        for method, values in scores.items()
        if values
    }
    return tuple(sorted(means, key=lambda method: means[method]))
