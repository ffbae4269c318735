"""Mean and deviation of what settings deliver, against numpy."""

import json
import math
import random

import numpy as np
import pytest

from annealtune.annealing import Setting
from annealtune.annealing.slope_ratios import SlopeRatios

SETTINGS = [
    Setting({"lr": 0.1}),
    Setting({"lr": 0.2}),
    Setting({"lr": 0.1, "betas": (0.9, 0.99)}),  # JSON turns tuples into lists
]


def moves(count):
    source = random.Random(0)
    for _ in range(count):
        number = source.randrange(len(SETTINGS))
        yield number, source.gauss(number - 1, 0.3)


def test_each_setting_has_a_mean_and_a_deviation_of_its_own():
    ratios, seen = SlopeRatios(), [[] for _ in SETTINGS]
    for number, ratio in moves(100):
        ratios.learn(SETTINGS[number], ratio)
        seen[number].append(ratio)
    for setting, values in zip(SETTINGS, seen, strict=True):
        weights = 0.95 ** np.arange(len(values))[::-1]
        mean = np.average(values, weights=weights)
        variance = np.average((np.array(values) - mean) ** 2, weights=weights)
        assert ratios.mean(setting) == pytest.approx(mean)
        assert ratios.deviation(setting) == pytest.approx(math.sqrt(variance))
        assert ratios.measured(setting) == len(values) > 10


@pytest.mark.parametrize("ratio", [math.nan, math.inf, -math.inf])
def test_one_that_is_not_finite_is_not_learned(ratio):
    ratios = SlopeRatios()
    ratios.learn(SETTINGS[0], -1.0)
    before = ratios.state_dict()
    ratios.learn(SETTINGS[0], ratio)
    ratios.learn(SETTINGS[1], ratio)
    assert ratios.state_dict() == before


def test_nothing_is_known_of_what_was_never_measured():
    ratios = SlopeRatios()
    assert math.isnan(ratios.mean(SETTINGS[0]))
    assert ratios.deviation(SETTINGS[0]) == math.inf
    assert ratios.measured(SETTINGS[0]) == 0
    assert ratios.state_dict() == []


@pytest.mark.parametrize("cut", [0, 1, 25])
def test_saved_as_json_text_they_continue_the_very_same(cut):
    steps = list(moves(60))
    ratios, resumed = SlopeRatios(), SlopeRatios()
    for number, ratio in steps[:cut]:
        ratios.learn(SETTINGS[number], ratio)
    resumed.load_state_dict(json.loads(json.dumps(ratios.state_dict())))
    for number, ratio in steps[cut:]:
        ratios.learn(SETTINGS[number], ratio)
        resumed.learn(SETTINGS[number], ratio)
    assert resumed.state_dict() == ratios.state_dict()
    for setting in SETTINGS:
        assert resumed.deviation(setting) == ratios.deviation(setting)
