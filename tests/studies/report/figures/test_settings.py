"""Which settings were accepted when, by hand."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from annealtune.studies.records import Study
from annealtune.studies.report.figures.settings import acceptance_map, draw_acceptance
from annealtune.studies.report.figures.style import blank, style


def ticks_of(found: Any) -> list[str]:
    with style():
        axes = draw_acceptance(blank(), found)
    return [tick.get_text() for tick in axes.get_yticklabels()]


def test_the_map_of_settings_by_hand(three_methods: Study) -> None:
    """Each rate is tried 4 times by each of 3 seeds; 0.9 is kept once, 0.5 twice, 0.1 thrice."""
    found = acceptance_map(three_methods.of("sgd-sa"))
    assert found is not None
    assert found.settings == ({"lr": 0.9}, {"lr": 0.5}, {"lr": 0.1})
    assert found.epochs == (1, 2, 3, 4)
    assert found.rates.tolist() == [[0.25] * 4, [0.5] * 4, [0.75] * 4]
    assert ticks_of(found) == ["0.9", "0.5", "0.1"]
    assert acceptance_map(three_methods.of("scheduled-sgd")) is None


def test_settings_of_several_options_and_gaps(make_study: Callable[..., Study]) -> None:
    [run] = make_study({"sgd-sa": {0: {"done": 1}}}).runs
    first = {"betas": [0.9, 0.999], "lr": 0.1, "nesterov": True}
    second = {"betas": [0.8, 0.99], "lr": 0.5, "nesterov": False}
    lines = (
        {"epoch": 1, "settings": [{"setting": first, "tried": 2, "accepted": 1}]},
        {"epoch": 3, "settings": [{"setting": second, "tried": 4, "accepted": 4}]},
        {"epoch": 4, "settings": [{"setting": second, "tried": 0, "accepted": 0}]},
    )
    found = acceptance_map([dataclasses.replace(run, moves=lines)])
    assert found is not None
    np.testing.assert_array_equal(found.rates, [[np.nan, np.nan, 1.0], [0.5, np.nan, np.nan]])
    assert [tick.partition("…")[0][:5] for tick in ticks_of(found)] == ["betas"] * 2
    assert [setting["lr"] for setting in found.settings] == [0.5, 0.1]


def test_long_runs_and_large_neighborhoods_are_counted_together(
    make_study: Callable[..., Study],
) -> None:
    [run] = make_study({"sgd-sa": {0: {"done": 1}}}).runs
    lines = tuple(
        {"epoch": e, "settings": [{"setting": {"lr": e % 300 + 1.0}, "tried": 2, "accepted": 1}]}
        for e in range(1, 5001)
    )
    found = acceptance_map([dataclasses.replace(run, moves=lines)])
    assert found is not None
    assert found.rates.shape == (200, 500)
    assert found.epochs[:2] == (10, 20)
    assert len(ticks_of(found)) <= 24
