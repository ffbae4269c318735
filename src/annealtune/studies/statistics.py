"""Numbers about a study: of each run, of each method over its seeds, of each pair of methods.

Nothing here draws. A number that cannot be known is None: the deviation of one run, the interval of
one pair of seeds, the score of a run that failed.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from annealtune.studies.records import RunRecord, Study

SIGNIFICANCE_LEVEL = 0.05
# Accuracies are ratios of counts. Equal ones agree to this many digits, as do their means and
# differences, but not to the last bit.
DIGITS = 12
MINUS = "\N{MINUS SIGN}"
# A curve over the rate needs this many of them.
FEWEST_RATES = 3


class Measure(NamedTuple):
    """One number of a run.

    Attributes:
        epoch: ``"last"``, as in the paper's Table 1, or ``"best"`` on the validation set.
        part: the data it is measured on.
        quantity: ``"paper_loss"`` is the sum of the minibatches' mean losses divided by the number
            of images, the scale of the paper's Table 1.
    """

    epoch: Literal["last", "best"]
    part: Literal["validation", "test"]
    quantity: Literal["accuracy", "loss", "paper_loss"]

    @property
    def key(self) -> str:
        """Its name in a file."""
        return f"{self.epoch}_{self.part}_{self.quantity}"

    @property
    def title(self) -> str:
        """Its name for a reader."""
        return f"{self.part} {self.quantity_title}, {self.epoch} epoch"

    @property
    def quantity_title(self) -> str:
        """The name of its quantity for a reader."""
        return {"accuracy": "accuracy", "loss": "loss", "paper_loss": "loss (paper's scale)"}[
            self.quantity
        ]

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger number is the better one."""
        return self.quantity == "accuracy"

    def best(self, values: Iterable[float]) -> float:
        """Return the best of some values."""
        return max(values) if self.higher_is_better else min(values)

    def text(self, value: float) -> str:
        """Return a value as it is shown: accuracies in per cent, losses as decimals.

        Example:
            >>> Measure("last", "validation", "accuracy").text(0.8676)
            '86.76 %'
            >>> Measure("last", "validation", "paper_loss").text(0.001084)
            '0.001084'
        """
        return self.number(value) + (" %" if self.quantity == "accuracy" else "")

    def difference(self, value: float) -> str:
        """Return a difference of two values as it is shown, with its sign and unit.

        Example:
            >>> Measure("last", "validation", "accuracy").difference(0.0123)
            '+1.23 points'
        """
        unit = " points" if self.quantity == "accuracy" else ""
        return f"{self.number(value, signed=True)}{unit}"

    def number(self, value: float, *, signed: bool = False) -> str:
        """Return a value without its unit."""
        digits = 6 if self.quantity == "paper_loss" else 4
        if self.quantity == "accuracy":
            text = f"{100 * value:.2f}"
        elif value == 0 or 10**-digits <= abs(value) < 10**6:
            text = f"{value:.{digits}f}"
        else:
            text = f"{value:.2e}"
        shown = float(text)
        sign = "+" if signed and shown > 0 else ""
        return sign + (text.replace("-", MINUS) if shown else text.removeprefix("-"))


MEASURES = (
    Measure("last", "validation", "accuracy"),
    Measure("last", "validation", "loss"),
    Measure("last", "validation", "paper_loss"),
    Measure("best", "validation", "accuracy"),
    Measure("best", "validation", "loss"),
    Measure("best", "validation", "paper_loss"),
    Measure("best", "test", "accuracy"),
    Measure("best", "test", "loss"),
)


def score(run: RunRecord, measure: Measure) -> float | None:
    """Return what a run reached, None if it did not finish or the number is missing.

    The test set is looked at once, with the weights of the best epoch.
    """
    if run.result is None:
        return None
    if measure.part == "test":
        return number(run.result, f"test_{measure.quantity}")
    if measure.quantity == "paper_loss":
        epoch = run.result.get("epochs" if measure.epoch == "last" else "best_epoch")
        records = [record for record in run.metrics if record.get("epoch") == epoch]
        return number(records[0], "validation_paper_loss") if records else None
    return number(run.result, f"{measure.epoch}_validation_{measure.quantity}")


def test_set_chose(study: Study) -> bool:
    """Whether the test set chose the best epoch, as in the paper."""
    return study.experiment.get("validate_on") == "test"


def main_measure(study: Study) -> Measure:
    """Return what the methods of a study are ranked by.

    The accuracy on the test set, which chose nothing; where it chose the best epoch, the accuracy
    of the last epoch, which nothing chose. Runs that have only losses are ranked by the loss.
    """
    records = [record for run in study.runs for record in run.metrics]
    has_accuracy = not records or any("validation_accuracy" in record for record in records)
    quantity: Literal["accuracy", "loss"] = "accuracy" if has_accuracy else "loss"
    if test_set_chose(study):
        return Measure("last", "validation", quantity)
    return Measure("best", "test", quantity)


def kind_of(study: Study, method: str) -> str:
    """Return the method behind a label, which may be a name of the user's own."""
    return str(study.configs[method]["method"])


def number(record: Mapping[str, Any], key: str) -> float | None:
    """Return a finite number of a record, None for anything else."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def mean_result(runs: Iterable[RunRecord], key: str) -> float | None:
    """Return the mean of a number of ``result.json`` over the finished runs that have it."""
    known = [n for run in runs if (n := number(run.result or {}, key)) is not None]
    return fmean(known) if known else None


class RateSweep(NamedTuple):
    """Methods of a study that differ in their learning rate alone.

    Attributes:
        kind: the method behind their labels.
        labels: by rate, the lowest first.
    """

    kind: str
    labels: dict[float, str]


def sweeps_of(study: Study) -> list[RateSweep]:
    """Return every kind of method that stands at three or more learning rates, largest first."""
    groups: dict[tuple[str, str], dict[float, str]] = {}
    for label in study.methods:
        kind, config = kind_of(study, label), study.configs[label]
        options = config.get(kind)
        rate = number(options, "lr") if isinstance(options, Mapping) else None
        if rate is not None and rate > 0:
            rest = json.dumps({**config, kind: {**config[kind], "lr": None}}, sort_keys=True)
            groups.setdefault((kind, rest), {})[rate] = label
    sweeps = [
        RateSweep(kind, dict(sorted(labels.items())))
        for (kind, _), labels in groups.items()
        if len(labels) >= FEWEST_RATES
    ]
    return sorted(sweeps, key=lambda sweep: -len(sweep.labels))


def rate_found(run: RunRecord) -> float | None:
    """Return the rate that a run's last race was decided for; None if it had no race."""
    races = [race for record in run.metrics for race in record.get("races") or ()]
    rates = [rate for race in races if (rate := number(race, "rate"))]
    return rates[-1] if rates else None


# --- each method and each pair of methods ---


class Summary(NamedTuple):
    """What one method reached by one measure, over the runs that finished with a number.

    Attributes:
        mean: None without any.
        deviation: of the sample (divisor n - 1), None for fewer than two.
        best: over the seeds, None without any.
    """

    mean: float | None
    deviation: float | None
    best: float | None


class Comparison(NamedTuple):
    """How two methods differ over the seeds that both finished.

    Attributes:
        first: a label.
        second: a label.
        n: the pairs of runs.
        unpaired: seeds for which only one of the two has a number; they are left out.
        difference: the mean of first minus second; None without a pair.
        low: the lower end of its 95 % interval; None for fewer than two different pairs.
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
        summaries: by method, in the order of the study.
        comparisons: of every pair of methods with a number, the better one first.
        ranking: the methods with a number, best mean first: over the seeds that all of them
            finished, over their own seeds if there is no such seed.
    """

    measure: Measure
    summaries: dict[str, Summary]
    comparisons: tuple[Comparison, ...]
    ranking: tuple[str, ...]


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
    pairs = itertools.combinations(ranking, 2)
    return Statistics(
        measure,
        {method: _summarize(list(values.values()), measure) for method, values in scores.items()},
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
    low, high = mean_interval(differences)
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


def mean_interval(differences: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a mean by Student's t, as wide as a few seeds deserve.

    A bootstrap of two seeds ends at these two, and holds the true mean in half of all cases.

    Returns:
        Low and high; None and None where nothing varies.

    Example:
        >>> low, high = mean_interval([0.01, 0.02])
        >>> f"{low:.3f} to {high:.3f}"
        '-0.049 to 0.079'
    """
    if len(set(differences)) < 2:
        return None, None
    error = stdev(differences) / math.sqrt(len(differences))
    low, high = stats.t.interval(0.95, len(differences) - 1, fmean(differences), error)
    return float(low), float(high)


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


def _summarize(values: list[float], measure: Measure) -> Summary:
    return Summary(
        mean=fmean(values) if values else None,
        deviation=stdev(values) if len(values) > 1 else None,
        best=measure.best(values) if values else None,
    )
