"""One fit for every combination of the options beside the rate."""

import json
import math
import random

import pytest

from annealtune.annealing import Setting
from annealtune.annealing.parabola import Parabola
from annealtune.annealing.predictions import Predictions

KINDS = [
    lambda rate: {"lr": rate},
    lambda rate: {"lr": rate, "momentum": 0.9},
    lambda rate: {"momentum": 0.0, "lr": rate},
    lambda rate: {"lr": rate, "betas": (0.9, 0.99)},  # JSON turns tuples into lists
]


def moves(count, seed=0):
    """Settings of every kind and what they did, in mixed order."""
    source = random.Random(seed)
    for _ in range(count):
        kind, rate = source.randrange(len(KINDS)), 10 ** source.uniform(-3, 0)
        yield kind, rate, source.gauss(-(kind + 1) * rate, rate)


def test_each_combination_of_the_others_has_a_parabola_of_its_own():
    predictions = Predictions(forgetting=0.9)
    separate = [Parabola(0.9) for _ in KINDS]
    for kind, rate, worsening in moves(80):
        predictions.learn(Setting(KINDS[kind](rate)), worsening)
        separate[kind].learn(rate, worsening)
    for make, parabola in zip(KINDS, separate, strict=True):
        setting = Setting(make(0.123))
        assert predictions.worsening(setting) == parabola.worsening(0.123)
        assert predictions.measured(setting) == parabola.measured > 5
        assert predictions.reaches(Setting(make(4.0 * parabola.largest)))
        assert not predictions.reaches(Setting(make(4.001 * parabola.largest)))


@pytest.mark.parametrize(
    "setting", [{"momentum": 0.9}, {"lr": 0.0, "momentum": 0.9}, {"weight_decay": 0.1}]
)
def test_without_a_positive_rate_the_prediction_is_the_mean(setting):
    predictions, worsenings = Predictions(forgetting=0.5), [1.0, -2.0, 4.0]
    for worsening in worsenings:
        predictions.learn(Setting(setting), worsening)
    mean = (0.25 * 1 - 0.5 * 2 + 4) / 1.75
    assert predictions.worsening(Setting(setting)) == pytest.approx(mean)
    assert predictions.reaches(Setting(setting))
    other = Setting({**setting, "nesterov": True})
    assert math.isnan(predictions.worsening(other))


def test_the_setting_without_a_rate_is_none_of_those_with_one():
    predictions = Predictions()
    predictions.learn(Setting({"lr": 0.0}), 5.0)
    assert predictions.measured(Setting({"lr": 0.1})) == 0
    predictions.learn(Setting({"lr": 0.1}), -1.0)
    assert predictions.worsening(Setting({"lr": 0.0})) == 5.0
    assert predictions.worsening(Setting({"lr": 0.2})) == pytest.approx(-2.0)


def test_nothing_is_known_of_what_was_never_measured():
    predictions, setting = Predictions(), Setting({"lr": 0.1})
    assert math.isnan(predictions.worsening(setting))
    assert predictions.measured(setting) == 0
    assert not predictions.reaches(setting)
    assert predictions.state_dict() == []  # and asking leaves no trace


@pytest.mark.parametrize("cut", [0, 1, 25])
def test_saved_as_json_text_they_continue_the_very_same(cut):
    steps = [(Setting(KINDS[kind](rate)), w) for kind, rate, w in moves(60)]
    steps[3:3] = [(Setting({"momentum": 0.5}), 0.1)]
    predictions, resumed = Predictions(), Predictions()
    for setting, worsening in steps[:cut]:
        predictions.learn(setting, worsening)
    resumed.load_state_dict(json.loads(json.dumps(predictions.state_dict())))
    for setting, worsening in steps[cut:]:
        predictions.learn(setting, worsening)
        resumed.learn(setting, worsening)
    assert resumed.state_dict() == predictions.state_dict()
    for setting, _ in steps:
        assert resumed.worsening(setting) == predictions.worsening(setting)
