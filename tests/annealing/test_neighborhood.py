"""The set H: what a setting is, what a neighborhood holds, how one is picked."""

import copy
import json
import math
import pickle
import random
import re
from collections import Counter

import pytest

from annealtune.annealing import Neighborhood, Setting, grid
from annealtune.annealing.neighborhood import restored

PAPER = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.09, 0.08, 0.07, 0.06, 0.05]


class CountingRandom(random.Random):
    """Counts the numbers that are drawn from it."""

    draws = 0

    def random(self):
        self.draws += 1
        return super().random()

    def getrandbits(self, bits):
        raise AssertionError("a pick draws one uniform number and nothing else")


def test_a_setting_is_an_immutable_mapping():
    setting = Setting({"lr": 0.1, "momentum": 0.9})
    assert dict(setting) == {"lr": 0.1, "momentum": 0.9}
    assert len(setting) == 2
    assert str(setting) == "lr=0.1, momentum=0.9"
    assert repr(setting) == "Setting(lr=0.1, momentum=0.9)"
    with pytest.raises(TypeError):
        setting["lr"] = 0.2
    with pytest.raises(AttributeError):
        setting.lr = 0.2


def test_settings_are_equal_by_content_not_by_order():
    one = Setting({"lr": 0.1, "momentum": 0.9})
    other = Setting({"momentum": 0.9, "lr": 0.1})
    assert one == other == {"lr": 0.1, "momentum": 0.9}
    assert hash(one) == hash(other)
    assert one != Setting({"lr": 0.1, "momentum": 0.8})
    assert one != "lr=0.1, momentum=0.9"


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_copies_of_a_setting_are_equal(duplicate):
    setting = Setting({"lr": 0.1, "betas": (0.9, 0.999)})
    assert duplicate(setting) == setting
    assert hash(duplicate(setting)) == hash(setting)


def test_grid_is_the_product_with_the_first_option_outermost():
    neighborhood = grid(lr=[0.1, 0.01], momentum=[0.0, 0.9])
    assert list(neighborhood) == [
        {"lr": 0.1, "momentum": 0.0},
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.01, "momentum": 0.0},
        {"lr": 0.01, "momentum": 0.9},
    ]
    assert neighborhood.options == ("lr", "momentum")
    assert neighborhood.dropped == ()


def test_grid_takes_any_iterable():
    assert grid(lr=(rate / 10 for rate in (1, 2))) == grid(lr=[0.1, 0.2])
    assert grid(lr=(0.1,), nesterov={True}) == Neighborhood([{"lr": 0.1, "nesterov": True}])


def test_dropped_settings_are_kept_for_the_report_and_out_of_the_picks():
    refused = Setting({"lr": 0.1, "nesterov": True})
    neighborhood = Neighborhood([{"lr": 0.1, "nesterov": False}], dropped=[refused])
    assert neighborhood.dropped == (refused,)
    assert refused not in neighborhood


def test_pick_takes_exactly_one_draw():
    rng = CountingRandom(0)
    neighborhood = grid(lr=PAPER)
    for picks in range(1, 101):
        neighborhood.pick(rng)
        assert rng.draws == picks


def test_picks_are_uniform():
    rng = random.Random(14)
    neighborhood = grid(lr=PAPER)
    counts = Counter(neighborhood.pick(rng)["lr"] for _ in range(100_000))
    expected = 100_000 / len(PAPER)
    chi_square = sum((counts[rate] - expected) ** 2 / expected for rate in PAPER)
    assert chi_square < 34.528  # 99.9 % of the chi-square distribution with 13 degrees of freedom


@pytest.mark.parametrize(
    ("build", "error", "argument"),
    [
        (lambda: Setting({}), ValueError, "Setting(options=...)"),
        (lambda: Setting({"lr": -0.1}), ValueError, "Setting(lr=...)"),
        (lambda: Setting({"lr": math.nan}), ValueError, "Setting(lr=...)"),
        (lambda: Setting({"lr": "0.1"}), TypeError, "Setting(lr=...)"),
        (lambda: Setting({"betas": [0.9]}), TypeError, "Setting(betas=...)"),
        (lambda: Neighborhood([]), ValueError, "Neighborhood(settings=...)"),
        (lambda: Neighborhood([{"lr": 0.1}, {"lr": 0.1}]), ValueError, "Neighborhood(settings"),
        (lambda: Neighborhood([{"lr": 0.1}, {"x": 0.9}]), ValueError, "Neighborhood(settings"),
        (lambda: grid(), ValueError, "grid()"),
        (lambda: grid(lr=[]), ValueError, "Neighborhood(settings=...)"),
        (lambda: grid(lr=0.1), TypeError, "grid(lr=...)"),
        (lambda: grid(name="sgd"), TypeError, "grid(name=...)"),
    ],
)
def test_bad_input_names_class_and_argument(build, error, argument):
    with pytest.raises(error, match=re.escape(argument)):
        build()


def test_a_setting_returns_from_json_with_its_tuples():
    setting = Setting({"lr": 0.1, "nesterov": True, "betas": (0.9, 0.999)})
    assert restored(json.loads(json.dumps(dict(setting)))) == setting
