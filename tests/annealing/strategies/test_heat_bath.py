"""The heat bath: Boltzmann's weights, no leaps into the unknown, and nothing broken is kept."""

import math
import random

import pytest

from annealtune.annealing import HeatBath, Predicted, Screenable, Setting, grid
from annealtune.annealing.strategies.heat_bath import boltzmann_shares, pick_by_share

INF, NAN = math.inf, math.nan
RATES = grid(lr=[0.4, 0.1, 0.8, 0.2])
MIXED = grid(lr=[0.1, 0.2, 0.4], momentum=[0.0, 0.9])
WITHOUT_RATE = grid(momentum=[0.0, 0.5, 0.9], nesterov=[False])


def parabola(setting, value):
    """What gains most is the rate 0.3."""
    rate = setting["lr"]
    return value * (1 - 2 * rate + rate**2 / 0.3)


def drive(strategy, neighborhood, steps, new_value=parabola, seed=0, scale=1.0):
    """Make steps on minibatches of different losses; return settings and verdicts."""
    rng, source = random.Random(seed), random.Random(99)
    seen = []
    for _ in range(steps):
        setting, value = strategy.pick(neighborhood, rng), scale * source.uniform(0.5, 1.5)
        verdict = strategy.decide(value, new_value(setting, value), rng)
        strategy.observe(setting, verdict)
        strategy.tick("step")
        seen.append((setting, verdict))
    return seen


@pytest.mark.parametrize(
    ("worsenings", "tau", "temperature"),
    [
        ([-1.0, -0.5, 0.2, 3.0], 1.0, 1.0),
        ([-0.5, -1.0, 0.2], 0.5, 0.5),
        ([-1.0, -1.0, 0.0], 4.0, 4.0),
        ([0.5, 0.25, 1.0], 1.0, 0.25),  # nothing gains: the least worsening is the unit
        ([1e-9, -2e-9], 1.0, 2e-9),
    ],
)
def test_each_is_picked_with_its_weight(worsenings, tau, temperature):
    weights = [math.exp(-worsening / temperature) for worsening in worsenings]
    rng, draws = random.Random(1), 20_000
    picked = [pick_by_share(boltzmann_shares(worsenings, tau), rng.random()) for _ in range(draws)]
    for index, weight in enumerate(weights):
        share = weight / sum(weights)
        error = math.sqrt(share * (1 - share) / draws)
        assert picked.count(index) / draws == pytest.approx(share, abs=4 * error)


@pytest.mark.parametrize("worsenings", [[2.0, -1.0, 0.0, -1.0], [0.5, 0.25], [0.0, 1.0], [7.0]])
@pytest.mark.parametrize("draw", [0.0, 0.5, math.nextafter(1.0, 0.0)])
def test_without_heat_it_is_the_first_of_the_best(worsenings, draw):
    assert pick_by_share(boltzmann_shares(worsenings, 0.0), draw) == worsenings.index(
        min(worsenings)
    )
    if min(worsenings) == 0:  # and what is worth nothing gives no heat
        assert pick_by_share(boltzmann_shares(worsenings, 1.0), draw) == 0


def test_picks_of_a_run_have_the_weights_of_its_parabola():
    strategy = HeatBath(tau=0.5)
    drive(strategy, RATES, 300, lambda setting, value: value - 2 * setting["lr"] + setting["lr"])
    # Now worsening is -rate: the best gain is 0.8, the temperature half of it.
    weights = {setting: math.exp(setting["lr"] / 0.4) for setting in RATES}
    rng, draws = random.Random(5), 5000
    picked = [strategy.pick(RATES, rng) for _ in range(draws)]
    assert strategy.temperature == pytest.approx(0.4)
    for setting, weight in weights.items():
        share = weight / sum(weights.values())
        error = math.sqrt(share * (1 - share) / draws)
        assert picked.count(setting) / draws == pytest.approx(share, abs=4 * error)


@pytest.mark.parametrize("scale", [2.0**-10, 2.0**10, 2.0**-40])
@pytest.mark.parametrize("neighborhood", [RATES, MIXED])
def test_the_unit_of_the_loss_does_not_matter(neighborhood, scale):
    def rough(setting, value):
        return parabola(setting, value) if setting["lr"] < 0.4 else 3 * value

    here = drive(HeatBath(), neighborhood, 200, rough)
    there = drive(HeatBath(), neighborhood, 200, rough, scale=scale)
    assert [s for s, _ in there] == [s for s, _ in here]
    assert [v.accepted for _, v in there] == [v.accepted for _, v in here]
    assert {v.accepted for _, v in here} == {True, False}


@pytest.mark.parametrize("others", [{}, {"momentum": [0.0, 0.9]}])
@pytest.mark.parametrize("broken", [False, True])
def test_a_rate_is_approached_from_below(others, broken):
    rates = [1e-3, 2e-3, 5e-3, 1e-2, 1.0, 2.0, 1e3, 1e4]
    neighborhood = grid(lr=random.Random(0).sample(rates, len(rates)), **others)

    def new_value(setting, value):
        return NAN if broken and setting["lr"] > 0.1 else value - 1e-4 * setting["lr"]

    largest: dict[Setting, float] = {}
    for setting, _ in drive(HeatBath(), neighborhood, 300, new_value):
        rate = setting["lr"]
        kind = Setting({"momentum": setting.get("momentum", 0.0)})
        if kind not in largest:
            assert rate == min(rates)
        else:
            assert rate <= min(r for r in rates if r > 4 * largest[kind] or r == max(rates))
        largest[kind] = max(largest.get(kind, 0.0), rate)
    assert set(largest.values()) == ({1.0} if broken else {max(rates)})


@pytest.mark.parametrize("broken", [NAN, INF, -INF, 1e300])
@pytest.mark.parametrize(
    ("neighborhood", "bad"),
    [(RATES, index) for index in range(4)] + [(WITHOUT_RATE, 0), (MIXED, 0), (MIXED, 5)],
)
def test_a_broken_setting_is_rejected_and_left(neighborhood, bad, broken):
    def new_value(setting, value):
        return broken if setting == neighborhood[bad] else 0.99 * value

    seen = drive(HeatBath(), neighborhood, 200, new_value)
    assert all(v.accepted == (s != neighborhood[bad]) for s, v in seen)
    tries = [s == neighborhood[bad] for s, _ in seen]
    assert any(tries)
    assert sum(tries[100:]) < 50


@pytest.mark.parametrize("broken", [NAN, INF, -INF])
@pytest.mark.parametrize("neighborhood", [RATES, MIXED, WITHOUT_RATE])
def test_where_everything_is_broken_everything_is_tried(neighborhood, broken):
    seen = drive(HeatBath(), neighborhood, 300, lambda setting, value: broken)
    assert not any(v.accepted for _, v in seen)
    within_reach = {s for s in neighborhood if s.get("lr", 0.0) <= 0.4}
    assert {s for s, _ in seen[-250:]} >= within_reach


@pytest.mark.parametrize("neighborhood", [RATES, MIXED, WITHOUT_RATE])
def test_every_kind_of_setting_is_tried_first_of_all_by_its_smallest_rate(neighborhood):
    seen = [s for s, _ in drive(HeatBath(), neighborhood, 300, lambda setting, value: 0.9 * value)]
    kinds = {tuple((k, v) for k, v in s.items() if k != "lr") for s in neighborhood}
    first = seen[: len(kinds)]
    assert len(set(first)) == len(kinds)
    assert {s.get("lr", 0.1) for s in first} == {0.1}
    assert set(seen) == set(neighborhood)


def test_what_worsens_by_more_than_a_fifth_is_undone():
    strategy, rng = HeatBath(), random.Random(0)
    moves = [(1.0, 1.2), (1.0, 1.21), (-1.0, -0.8), (-1.0, -0.7), (0.01, 0.029), (0.01, 0.031)]
    # Late in a run, changes are compared with a tenth of the highest level: 0.1 here.
    outcomes = [strategy.decide(*move, rng).accepted for move in moves]
    assert outcomes == [True, False] * 3


def test_a_predicted_value_is_accepted_and_teaches_nothing():
    strategy, rng = HeatBath(), random.Random(0)
    drive(strategy, RATES, 30)
    before = strategy.state_dict()
    verdict = strategy.decide(1.0, Predicted(1e6), rng)
    assert (verdict.accepted, verdict.worsening) == (True, 1e6 - 1)
    assert strategy.state_dict() == before


@pytest.mark.parametrize(("worsening", "bound"), [(-0.1, INF), (0.15, INF), (0.3, None)])
def test_what_promises_harm_is_to_be_measured(worsening, bound, through_json):
    strategy = HeatBath()
    assert isinstance(strategy, Screenable)
    neighborhood = grid(momentum=[0.5])
    for _ in range(10):
        rng = random.Random(0)
        setting = strategy.pick(neighborhood, rng)
        strategy.observe(setting, strategy.decide(1.0, 1.0 + worsening, rng))
    strategy.pick(neighborhood, rng)
    assert strategy.bound(1.0, rng) == bound
    assert through_json(strategy, HeatBath()).bound(1.0, rng) == bound  # saved after the pick


@pytest.mark.parametrize(
    ("tau", "error"), [(-1.0, ValueError), (NAN, ValueError), (INF, ValueError), ("1", TypeError)]
)
def test_bad_input_names_class_argument_and_value(tau, error):
    with pytest.raises(error, match=r"HeatBath\(tau=\.\.\.\)") as caught:
        HeatBath(tau)
    assert repr(tau) in str(caught.value)
