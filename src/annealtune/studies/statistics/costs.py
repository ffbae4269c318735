"""What a run spends: forwards, backwards and time."""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any, NamedTuple

from annealtune.studies.records import Study

from .measures import number

# A backward takes about twice the arithmetic of a forward.
BACKWARD_COST = 2


class Cost(NamedTuple):
    """What the finished runs of a method spent on training, on average.

    Attributes:
        method: its label.
        planned: how many runs the study has of it.
        n: how many finished with these numbers.
        forwards: of training steps, probes included; None without any.
        backwards: None without any.
        total: forwards plus twice the backwards, in forwards; None without any.
        seconds: of training, without evaluation; depends on the machine and what else it did.
    """

    method: str
    planned: int
    n: int
    forwards: float | None
    backwards: float | None
    total: float | None
    seconds: float | None


def costs_of(study: Study) -> list[Cost]:
    """Return what each method of a study spent."""
    costs = []
    for method in study.methods:
        runs = study.of(method)
        results = [run.result for run in runs if run.result is not None]
        counted = [result for result in results if passes_of(result) is not None]
        costs.append(
            Cost(
                method,
                planned=len(runs),
                n=len(counted),
                forwards=_mean(number(result, "forwards") for result in counted),
                backwards=_mean(number(result, "backwards") for result in counted),
                total=_mean(passes_of(result) for result in counted),
                seconds=_mean(number(result, "training_seconds") for result in results),
            )
        )
    return costs


def passes_of(record: Mapping[str, Any]) -> float | None:
    """Return what a run spent up to one of its records: forwards plus twice the backwards."""
    forwards, backwards = number(record, "forwards"), number(record, "backwards")
    if forwards is None or backwards is None:
        return None
    return forwards + BACKWARD_COST * backwards


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
