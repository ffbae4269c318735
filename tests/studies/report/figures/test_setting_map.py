"""Which settings were accepted when, by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np

from annealtune.studies.records import Study
from annealtune.studies.report.figures import (
    setting_map,
)
from annealtune.studies.report.figures.style import blank, style


def dataclass_replace(run: Any, **changes: Any) -> Any:
    return type(run)(**{**run.__dict__, **changes})


def test_the_map_of_settings_by_hand(three_methods: Study) -> None:
    """Each rate is tried 4 times by each of 3 seeds; 0.9 is kept once, 0.5 twice, 0.1 thrice."""
    found = setting_map.acceptance_map(three_methods.of("sgd-sa"))
    assert found is not None
    assert found.settings == ({"lr": 0.9}, {"lr": 0.5}, {"lr": 0.1})
    assert found.epochs == (1, 2, 3, 4)
    assert found.rates.tolist() == [[0.25] * 4, [0.5] * 4, [0.75] * 4]
    with style():
        axes = setting_map.draw_acceptance(blank(), found)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0.9", "0.5", "0.1"]
    assert axes.get_ylabel() == "learning rate"


def test_settings_of_several_options_and_gaps(make_study: Callable[..., Study]) -> None:
    study = make_study({"sgd-sa": {0: {"done": 1}}})
    [run] = study.runs
    first = {"lr": 0.1, "momentum": 0.9, "nesterov": True}
    second = {"lr": 0.5, "momentum": 0, "nesterov": False}
    lines = (
        {"epoch": 1, "settings": [{"setting": first, "tried": 2, "accepted": 1}]},
        {"epoch": 3, "settings": [{"setting": second, "tried": 4, "accepted": 4}]},
        {"epoch": 4, "settings": [{"setting": second, "tried": 0, "accepted": 0}, "damaged"]},
        {"epoch": -1, "settings": [{"setting": second, "tried": 9, "accepted": 0}]},
        {"settings": None},
    )
    found = setting_map.acceptance_map([dataclass_replace(run, moves=lines)])
    assert found is not None
    assert found.settings == (second, first)
    expected = [[np.nan, np.nan, 1.0], [0.5, np.nan, np.nan]]
    np.testing.assert_array_equal(found.rates, expected)
    with style():
        axes = setting_map.draw_acceptance(blank(), found)
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    assert ticks == ["lr 0.5, momentum 0, nesterov no", "lr 0.1, momentum 0.9, nesterov yes"]


def test_settings_with_pairs(make_study: Callable[..., Study]) -> None:
    """Betas come out of JSON as lists."""
    [run] = make_study({"sgd-sa": {0: {"done": 1}}}).runs
    pairs = [{"betas": [0.9, 0.999], "lr": 0.01}, {"betas": [0.8, 0.99], "lr": 0.1}]
    moves = [{"setting": setting, "tried": 2, "accepted": 1} for setting in pairs]
    found = setting_map.acceptance_map(
        [dataclass_replace(run, moves=({"epoch": 1, "settings": moves},))]
    )
    assert found is not None
    assert found.rates.tolist() == [[0.5], [0.5]]
    with style():
        axes = setting_map.draw_acceptance(blank(), found)
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    assert ticks == ["betas 0.8 / 0.99, lr 0.1", "betas 0.9 / 0.999, lr 0.01"]


def test_no_moves_no_map(make_study: Callable[..., Study]) -> None:
    assert setting_map.acceptance_map(make_study({"sgd": {0: {}}}).runs) is None
