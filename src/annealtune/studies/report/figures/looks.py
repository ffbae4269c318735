"""One look for each method of a study, the same in all of its figures."""

from typing import Any, NamedTuple

from annealtune.studies.records import Study
from annealtune.studies.statistics.rate_sweeps import sweeps_of

from .style import RAMP, SERIES, colour, dashes, marker

# Beside a ramp of warm colours, the cool ones first.
_BESIDE_RAMP = tuple(SERIES[place] for place in (0, 2, 5, 12, 9, 8, 6, 13, 15, 3, 11))


class Look(NamedTuple):
    """How a method is drawn."""

    colour: str
    marker: str
    dashes: Any


def looks_of(study: Study) -> dict[str, Look]:
    """Return the look of every method of a study.

    Methods that differ only in their rate have the colours of a ramp, in the order of their rates,
    and all others colours that stand out beside it.
    """
    methods = study.methods
    sweeps = sweeps_of(study)
    if not sweeps:
        return {
            m: Look(colour(methods, m), marker(methods, m), dashes(methods, m)) for m in methods
        }
    looks: dict[str, Look] = {}
    for row, sweep in enumerate(sweeps):
        steps = max(1, len(sweep.labels) - 1)
        for place, label in enumerate(sweep.labels.values()):
            shade = RAMP[round(place * (len(RAMP) - 1) / steps)]
            looks[label] = Look(shade, "os^D"[row % 4], ("-", "--", ":", "-.")[row % 4])
    others = [method for method in methods if method not in looks]
    for place, method in enumerate(others):
        shade = _BESIDE_RAMP[place % len(_BESIDE_RAMP)]
        looks[method] = Look(shade, marker(others, method), dashes(others, method))
    return {method: looks[method] for method in methods}
