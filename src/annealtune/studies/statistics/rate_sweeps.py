"""A method at several learning rates, and the rates that other methods found by themselves."""

import json
from typing import Any, NamedTuple

from annealtune.studies.records import RunRecord, Study
from annealtune.training.storage import flat

from .measures import kind_of, number

# A curve over the rate needs this many of them.
FEWEST_RATES = 3
# The methods that choose or try rates while they train.
TUNING = frozenset({"self-tuned", "sgd-sa", "adamw-sa", "ssa", "random-rate"})


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
        kind = kind_of(study, label)
        options = flat(study.configs.get(label, {}))
        rate = options.pop(f"{kind}.lr", None)
        if isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0:
            rest = json.dumps(options, sort_keys=True, default=str)
            groups.setdefault((kind, rest), {})[float(rate)] = label
    sweeps = [
        RateSweep(kind, dict(sorted(labels.items())))
        for (kind, _), labels in groups.items()
        if len(labels) >= FEWEST_RATES
    ]
    return sorted(sweeps, key=lambda sweep: -len(sweep.labels))


def rate_found(run: RunRecord) -> float | None:
    """Return the learning rate that a run found by races; None if it had none.

    It is the one that the last race was decided for, before it is decayed.
    """
    races: list[Any] = []
    for record in run.metrics:
        found = record.get("races")
        races += found if isinstance(found, list) else []
    rates = [rate for race in races if isinstance(race, dict) and (rate := number(race, "rate"))]
    return rates[-1] if rates else None


def untuned(study: Study) -> list[str]:
    """Return the methods that tune nothing while they train."""
    return [method for method in study.methods if kind_of(study, method) not in TUNING]
