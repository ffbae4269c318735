"""The first figure of a study's page, the sentence above it and the words under it."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from annealtune.studies.records import Study
from annealtune.studies.statistics.measures import Measure, kind_of, main_measure
from annealtune.studies.statistics.rate_sweeps import RateSweep, sweeps_of, untuned
from annealtune.studies.statistics.summaries import Statistics, scores_of

from .figures import score_by_method, score_by_rate
from .figures.panels import Panel
from .figures.score_axis import shows_ratios
from .findings import leading_sentence


class Hero(NamedTuple):
    """What a page opens on.

    Attributes:
        headline: one sentence.
        panel: the figure.
        caption: what is seen in it.
    """

    headline: str
    panel: Panel
    caption: str


def hero_of(study: Study, statistics: Mapping[Measure, Statistics]) -> Hero | None:
    """Return the hero of a study: the score over the rate, or the score of each method.

    Args:
        study: finished or not.
        statistics: by measure, as `study_statistics` returns them.

    Returns:
        None if no run has a score, or the study looks for a good seed.
    """
    found = statistics.get(main_measure(study))
    if found is None:
        return None
    sweeps = [
        sweep
        for sweep in sweeps_of(study)
        if sum(found.summary(label).n > 0 for label in sweep.labels.values()) > 1
    ]
    return _over_rates(study, found, sweeps) if sweeps else _by_method(study, found)


def _over_rates(study: Study, statistics: Statistics, sweeps: list[RateSweep]) -> Hero:
    measure = statistics.measure
    title = f"{measure.title.capitalize()}, over the learning rate"
    draw = partial(score_by_rate.draw, study=study, statistics=statistics, sweeps=sweeps)
    swept = {label for sweep in sweeps for label in sweep.labels.values()}
    has_others = len(swept) < len(study.methods)
    tuned = [m for m in study.methods if m not in swept and kind_of(study, m) == "self-tuned"]
    pieces = [
        f"Large marks: the mean of the seeds at one fixed rate of {_all(s.kind for s in sweeps)}; "
        "dots: the seeds; grey: their range.",
        "Flat lines: methods that are not given one of these rates; band: the range of their seeds."
        if has_others
        else "",
        f"Ticks on the line of {_all(tuned)}: the rates it found, one a seed." if tuned else "",
        _scale_told(study, measure),
    ]
    headline = _rate_headline(statistics, sweeps[0], tuned)
    panel = Panel("hero", title, draw, score_by_rate.HEIGHT, is_wide=True)
    return Hero(headline, panel, " ".join(filter(None, pieces)))


def _rate_headline(statistics: Statistics, sweep: RateSweep, tuned: list[str]) -> str:
    measure = statistics.measure
    means = {
        rate: mean
        for rate, label in sweep.labels.items()
        if (mean := statistics.summary(label).mean) is not None
    }
    ranked = sorted(means, key=lambda rate: means[rate], reverse=measure.higher_is_better)
    best, worst = ranked[0], ranked[-1]
    what = f"{measure.part} {measure.quantity_title}"
    swept = f"at its best rate, {best:g}, and {measure.text(means[worst])} at its worst, {worst:g}."
    ours = next((m for m in statistics.ranking if m in tuned), None)
    if ours is None:
        return f"{sweep.kind} reached {measure.text(means[best])} {what} {swept}"
    own = measure.text(statistics.summary(ours).mean)
    return (
        f"{ours}, given no rate, reached {own} {what}; {sweep.kind} reached "
        f"{measure.text(means[best])} {swept}"
    )


def _by_method(study: Study, statistics: Statistics) -> Hero:
    measure = statistics.measure
    plain = [m for m in statistics.ranking if m in untuned(study)]
    baseline = plain[0] if plain and len(statistics.ranking) > 1 else None
    title = f"{_upper(measure.title)}, by method"
    draw = partial(score_by_method.draw, study=study, statistics=statistics, baseline=baseline)
    seed = study.vary.replace("_", " ")
    pieces = [
        f"Each dot is a {seed}; the upright mark is their mean, the bar its 95 % interval "
        "(bootstrap).",
        f"Dashed line: the mean of {baseline}, the best method that tunes nothing."
        if baseline
        else "",
        _scale_told(study, measure),
    ]
    panel = Panel("hero", title, draw, score_by_method.height_of(len(statistics.ranking)), True)
    return Hero(leading_sentence(study, statistics), panel, " ".join(filter(None, pieces)))


def _scale_told(study: Study, measure: Measure) -> str:
    """Say what equal lengths on the axis of scores are, where it is not even."""
    scores = [s for m in study.methods for s in scores_of(study, m, measure).values()]
    if not shows_ratios(measure, scores):
        return ""
    what = "error" if measure.quantity == "accuracy" else measure.quantity_title
    return f"Equal lengths are equal ratios of the {what}."


def _all(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else str(last)


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]
