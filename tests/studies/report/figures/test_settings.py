"""Which settings were accepted when, by hand."""

import dataclasses
from collections.abc import Callable

import numpy as np

from annealtune.studies.records import Study
from annealtune.studies.report.figures.settings import acceptance_of, setting_panels
from annealtune.studies.report.figures.style import blank, style


def test_the_map_of_settings_by_hand(three_methods: Study) -> None:
    """Each rate is tried 4 times by each of 3 seeds; 0.9 is kept once, 0.5 twice, 0.1 thrice."""
    settings, rates = acceptance_of(three_methods.of("sgd-sa"))
    assert settings == [{"lr": 0.9}, {"lr": 0.5}, {"lr": 0.1}]
    assert rates.tolist() == [[0.25] * 4, [0.5] * 4, [0.75] * 4]
    first, other = setting_panels(three_methods)
    assert (first.name, other.name) == ("settings-1", "settings-3")  # scheduled-sgd has no moves
    with style():
        axes = first.draw(blank())
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0.9", "0.5", "0.1"]


def test_settings_of_several_options_and_gaps(make_study: Callable[..., Study]) -> None:
    [run] = make_study({"sgd-sa": {0: {"done": 1}}}).runs
    first = {"betas": [0.9, 0.999], "lr": 0.1, "nesterov": True}
    second = {"betas": [0.8, 0.99], "lr": 0.5, "nesterov": False}
    lines = (
        {"epoch": 1, "settings": [{"setting": first, "tried": 2, "accepted": 1}]},
        {"epoch": 3, "settings": [{"setting": second, "tried": 4, "accepted": 4}]},
    )
    settings, rates = acceptance_of([dataclasses.replace(run, moves=lines)])
    np.testing.assert_array_equal(rates, [[np.nan, np.nan, 1.0], [0.5, np.nan, np.nan]])
    assert [setting["lr"] for setting in settings] == [0.5, 0.1]
