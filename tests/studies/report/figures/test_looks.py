"""One look a method: sixteen that differ, and a ramp for one method at several rates."""

from collections.abc import Callable

from annealtune.studies.records import Study
from annealtune.studies.report.figures.looks import looks_of
from annealtune.studies.report.figures.style import RAMP, SERIES


def test_sixteen_methods_have_sixteen_colours(make_study: Callable[..., Study]) -> None:
    looks = looks_of(make_study({f"m{n}": {0: None} for n in range(16)}))
    assert [look.colour for look in looks.values()] == list(SERIES)
    assert len({(look.marker, str(look.dashes)) for look in looks.values()}) == 16


def test_rates_are_a_ramp_in_their_order(make_study: Callable[..., Study]) -> None:
    rates = {"high": 1.0, "low": 1e-3, "middle": 0.1}
    methods = [
        {"label": label, "config": {"method": "sgd", "sgd": {"lr": rate}}}
        for label, rate in rates.items()
    ]
    methods.append({"label": "other", "config": {"method": "self-tuned"}})
    looks = looks_of(make_study({m["label"]: {0: None} for m in methods}, methods=methods))
    assert [looks[name].colour for name in ("low", "middle", "high")] == [
        RAMP[0],
        RAMP[4],
        RAMP[8],
    ]
    assert looks["other"].colour == SERIES[0]
