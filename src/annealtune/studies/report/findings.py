"""What came out of a study, in sentences: first the answer, then what to keep in mind."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from annealtune.studies.records import Study
from annealtune.studies.reproduction import PAPER_STUDIES
from annealtune.studies.statistics.comparisons import SIGNIFICANCE_LEVEL, Comparison
from annealtune.studies.statistics.measures import (
    Measure,
    kind_of,
    main_measure,
    number,
    test_set_chose,
)
from annealtune.studies.statistics.summaries import Statistics, statistics_of

from .method_tables import interval, probability

# With fewer seeds a bootstrap interval is clearly narrower than it should be.
_FEW_SEEDS = 8


class Finding(NamedTuple):
    """A paragraph of the answer.

    Attributes:
        text: plain, not escaped.
        kind: ``"answer"``, a ``"note"`` on how to read it, or a ``"warning"``.
    """

    text: str
    kind: Literal["answer", "note", "warning"] = "answer"


def findings(study: Study, statistics: Mapping[Measure, Statistics]) -> list[Finding]:
    """Say what a study shows, finished or not."""
    found = [*_answer(study, statistics), *_state(study), *_protocol(study)]
    order = ("answer", "warning", "note")
    return sorted(found, key=lambda finding: order.index(finding.kind))


def leading_sentence(study: Study, statistics: Statistics) -> str:
    """Return who came first, by how much, and whether that means anything."""
    measure, ranking = statistics.measure, statistics.ranking
    leader = statistics.summary(ranking[0])
    average = "of its one seed" if leader.n == 1 else f"on average over {leader.n} seeds"
    reached = f"{measure.text(leader.mean)} {measure.part} {measure.quantity_title} {average}"
    if len(ranking) == 1:
        why = "no other method" if len(study.methods) == 1 else "no finished run of another method"
        return f"{leader.method} reached {reached}. There is {why} to compare it with."
    second = ranking[1]
    comparison = statistics.comparison(leader.method, second)
    ahead = comparison.difference
    if ahead is None:
        return (
            f"{leader.method} has the best mean, {reached}, but no seed in common with {second}: "
            "their difference cannot be tested."
        )
    if not ahead:
        return f"{leader.method} and {second} reached the same: {reached}."
    size = measure.difference(abs(ahead)).lstrip("+")
    direction = "above" if ahead > 0 else "below"
    verdict = "significant" if comparison.is_significant else "not significant"
    return (
        f"{leader.method} came first with {reached}, {size} {direction} {second}; "
        f"the difference is {verdict}."
    )


def _answer(study: Study, statistics: Mapping[Measure, Statistics]) -> Iterator[Finding]:
    measure = main_measure(study)
    if study.search is not None:
        yield from _search(study.search)
    elif measure in statistics:
        found = statistics[measure]
        yield Finding(leading_sentence(study, found))
        yield _measured(measure)
        yield from _evidence_of(found)
        if study.name in PAPER_STUDIES:
            yield from _claim(study)
    else:
        yield Finding(f"No run has a {measure.title} yet: there is nothing to compare.")


def _evidence_of(statistics: Statistics) -> Iterator[Finding]:
    if len(statistics.ranking) == 1:
        return
    comparison = statistics.comparison(*statistics.ranking[:2])
    if comparison.difference is not None:
        evidence = _evidence(statistics.measure, comparison)
        yield Finding(f"{evidence} {_significance(comparison)}".strip())
        yield from _caveats(statistics, comparison)
    yield from _others(statistics)


def _measured(measure: Measure) -> Finding:
    if measure.epoch == "last":
        return Finding("Measured at the end of the last epoch.", "note")
    text = "Measured once, at the end, with the weights of the best epoch on the validation set."
    return Finding(text, "note")


def _evidence(measure: Measure, comparison: Comparison) -> str:
    known = comparison.low is not None
    return (
        f"Seed by seed {comparison.first} won {comparison.won}, lost {comparison.lost} and tied "
        f"{comparison.tied} of {comparison.n} against {comparison.second}. "
        + (f"The 95 % interval of the difference is {interval(measure, comparison)}. " * known)
        + f"Wilcoxon's test gives p = {probability(comparison.p_value)}, after Holm's correction "
        f"{probability(comparison.corrected_p_value)}."
    )


def _significance(comparison: Comparison) -> str:
    smallest = comparison.smallest_p_value or 1.0
    if comparison.is_significant or smallest < SIGNIFICANCE_LEVEL:
        return ""
    return (
        f"With {_seeds(comparison.n)} it could not be less than {probability(smallest)}: it takes "
        "at least 6 seeds to find anything at the 5 % level."
    )


def _others(statistics: Statistics) -> Iterator[Finding]:
    """Name the other differences that the corrected tests find."""
    if len(statistics.summaries) < 3:
        return
    pairs = [
        each if _is_ahead(statistics.measure, each) else each.reversed()
        for each in statistics.comparisons
        if each.is_significant and {each.first, each.second} != {*statistics.ranking[:2]}
    ]
    losers: dict[str, list[str]] = {}
    for each in pairs:
        losers.setdefault(each.first, []).append(each.second)
    if losers:
        named = "; ".join(f"{first} over {', '.join(all_)}" for first, all_ in losers.items())
        yield Finding(f"Other significant differences: {named}.")
    else:
        yield Finding("No difference between any other two methods is significant.")


def _caveats(statistics: Statistics, comparison: Comparison) -> Iterator[Finding]:
    if not statistics.is_balanced:
        n = len(statistics.common_seeds)
        over = f"the {_seeds(n)} that all of them finished" if n else "their own seeds"
        yield Finding(
            f"Not all methods finished the same seeds; they are ranked by their means over "
            f"{over}. A mean over other seeds may be the better one for that reason alone.",
            "note",
        )
    if comparison.low is not None and comparison.n < _FEW_SEEDS:
        few = f"An interval from {_seeds(comparison.n)} is narrower than it should be"
        yield Finding(f"{few}; take it as a hint.", "note")


def _claim(study: Study) -> Iterator[Finding]:
    """Hold the paper's claim about SGD-SA and Scheduled-SGD against this study."""
    ours = [
        method
        for method in study.methods
        if kind_of(study, method) == "sgd-sa"
        and _judges_as_the_paper(study.configs.get(method, {}))
    ]
    theirs = [method for method in study.methods if kind_of(study, method) == "scheduled-sgd"]
    loss, accuracy = (
        statistics_of(study, Measure("last", "validation", quantity))
        for quantity in ("loss", "accuracy")
    )
    counts = [
        f"{first} had a lower validation loss than {second} for {by_loss.won} of {by_loss.n} "
        f"seeds and a higher validation accuracy for {by_accuracy.won} of {by_accuracy.n}"
        for first in ours
        for second in theirs
        if (by_loss := loss.comparison(first, second)).n
        and (by_accuracy := accuracy.comparison(first, second)).n
    ]
    if counts:
        yield Finding(
            f"The paper's claim, at the last epoch: {'; '.join(counts)}. (The paper: a lower loss "
            "for all 10 seeds of both nets, a higher accuracy for 10 of 10 with VGG16 and for 7 of "
            "10 with ResNet34.)"
        )


def _judges_as_the_paper(config: Mapping[str, Any]) -> bool:
    """Whether it is simulated annealing on the loss of the same minibatch, as in the paper."""
    block = config.get("sgd-sa", {})
    own = {"strategy": "simulated-annealing", "accept_on": "loss", "accept_batch": "same"}
    return all(block.get(key, value) == value for key, value in own.items())


def _search(log: Mapping[str, Any]) -> Iterator[Finding]:
    """Tell what a search for the best seed found."""
    winner = log.get("winner")
    if not isinstance(winner, dict):
        yield Finding("The search for the best seed has not ended.")
        return
    measure = searched_by(winner)
    validation, test = (
        measure.text(number(winner, f"{part}_{measure.quantity}"))
        for part in ("validation", "test")
    )
    text = (
        f"The search chose {str(log.get('vary', 'seed')).replace('_', ' ')} {winner.get('seed')} "
        f"of {log.get('method')}: validation {measure.quantity} {validation} at its best epoch, "
        f"{winner.get('best_epoch')}. On the test set, which chose nothing, it reached {test}."
    )
    trained, full = log.get("epochs_trained"), log.get("epochs_without_pruning")
    cost = f" It took {trained} epochs instead of {full} without pruning." if trained else ""
    yield Finding(text + cost)
    yield Finding(
        "Seeds were given up on the way (successive halving), so that the runs that finished are "
        "chosen ones: their mean and deviation say nothing about the method.",
        "note",
    )


def searched_by(score: Mapping[str, Any]) -> Measure:
    """Return what a search judged by: the accuracy, or the loss of runs that have no other."""
    has_accuracy = number(score, "validation_accuracy") is not None
    return Measure("best", "validation", "accuracy" if has_accuracy else "loss")


def _state(study: Study) -> Iterator[Finding]:
    counts = Counter(run.state for run in study.runs)
    finished = counts.pop("finished", 0)
    if not study.runs:
        yield Finding("This study has no runs.", "warning")
    elif counts:
        states = ("failed", "pruned", "not finished", "not begun")
        rest = ", ".join(f"{counts[state]} {state}" for state in states if counts[state])
        text = f"{finished} of {len(study.runs)} runs finished: {rest}."
        yield Finding(text, "note" if counts.keys() == {"pruned"} else "warning")


def _protocol(study: Study) -> Iterator[Finding]:
    if test_set_chose(study):
        yield Finding(
            "The validation set of this study is the test set: numbers of the best epoch were "
            "chosen on the data they are measured on, and are optimistic. Methods are ranked by "
            "their last epoch.",
            "note",
        )


def _is_ahead(measure: Measure, comparison: Comparison) -> bool:
    difference = comparison.difference or 0.0
    return difference > 0 if measure.higher_is_better else difference < 0


def _seeds(n: int) -> str:
    return "1 seed" if n == 1 else f"{n} seeds"
