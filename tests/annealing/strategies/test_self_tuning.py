"""Self-tuning on losses whose best rate is known."""

import math
import random

import pytest

from annealtune.annealing import Predicted, Screenable, SelfTuning, Setting, grid
from annealtune.annealing.strategies.self_tuning import RATES

INF, NAN = math.inf, math.nan
H = SelfTuning.neighborhood()


class Landscape:
    """Minibatches whose loss falls most, by the share ``gain``, at the rate ``best``."""

    def __init__(self, best, scale=1.0, noise=0.0, gain=0.05):
        self.best, self.scale, self.noise, self.gain = best, scale, noise, gain
        self.source = random.Random(7)

    def move(self, rate):
        """Return the loss before and after a step with this rate."""
        jitter = self.noise * self.source.uniform(-1, 1)
        value = self.scale * (1 + jitter)
        x = rate / (self.best * math.exp(jitter))
        return value, value * (1 - self.gain * (2 * x - x * x))


def step(strategy, rng, landscape):
    """Make one step, measured if the strategy asks for it; return its rate."""
    setting = strategy.pick(H, rng)
    value, new_value = landscape.move(setting["lr"])
    foretold = strategy.bound(value, rng) is not None
    verdict = strategy.decide(value, Predicted(new_value) if foretold else new_value, rng)
    if not foretold:
        strategy.observe(setting, verdict)
    strategy.tick("step")
    return setting["lr"]


def drive(strategy, landscape, steps, epoch=None, seed=0):
    rng, rates = random.Random(seed), []
    for number in range(1, steps + 1):
        rates.append(step(strategy, rng, landscape))
        if epoch is not None and number % epoch == 0:
            strategy.tick("epoch")
    return rates


def tuned(best=0.1, **arguments):
    """Return a strategy that has just found its peak, and how many steps that took."""
    strategy, rng, landscape, steps = SelfTuning(**arguments), random.Random(0), Landscape(best), 0
    while strategy.peak is None:
        step(strategy, rng, landscape)
        steps += 1
    return strategy, steps


@pytest.mark.parametrize("best", [10.0**decade for decade in range(-6, 3)])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize(("noise", "gain"), [(0.0, 0.05), (0.3, 0.05), (0.3, 0.5)])
def test_the_peak_is_the_best_rate(best, scale, noise, gain):
    strategy = SelfTuning(steps=2000)
    rates = drive(strategy, Landscape(best, scale, noise, gain), 100)
    assert strategy.peak == pytest.approx(best, rel=0.3)
    assert rates[0] <= 2e-7  # it knew nothing
    # Twice the best rate changes nothing either: that is no reason to leap on.
    assert max(rates) < 6 * best


def test_the_unit_of_the_loss_does_not_matter_at_all():
    peaks = []
    for scale in (1.0, 2.0**-10, 2.0**10):
        strategy = SelfTuning()
        drive(strategy, Landscape(0.03, scale, noise=0.3), 100)
        peaks.append(strategy.peak)
    assert peaks[0] == peaks[1] == peaks[2]


def test_caution_divides_the_peak():
    assert tuned(caution=4.0)[0].peak == pytest.approx(tuned()[0].peak / 4)


def test_a_prior_has_its_say_after_caution():
    peaks = [tuned(0.01, caution=caution, prior=0.003)[0].peak for caution in (1.0, 4.0)]
    assert peaks[0] / peaks[1] == pytest.approx(4**0.2)


@pytest.mark.parametrize("best", [1e-3, 4e-3, 0.02, 0.1, 10.0])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_prior_draws_the_peak_by_four_fifths_and_tenfold_at_most(best, noise):
    strategy = SelfTuning(steps=2000, prior=4e-3)
    rates = drive(strategy, Landscape(best, noise=noise), 100)
    expected = best * min(max((4e-3 / best) ** 0.8, 0.1), 10.0)
    assert strategy.peak == pytest.approx(expected, rel=0.4)
    assert max(rates) < 6 * expected  # nothing is tried that would not be believed
    assert rates[0] < 1e-4  # well below what most networks bear


@pytest.mark.parametrize("best", [1e-6, 1e-5, 1e-4])
def test_harm_done_on_the_way_to_the_prior_keeps_the_peak_below(best):
    strategy = SelfTuning(steps=2000, prior=4e-3)
    drive(strategy, Landscape(best, noise=0.3), 100)
    assert best < strategy.peak < 5 * best


@pytest.mark.parametrize(
    ("length", "searched"),
    [({"steps": 100}, 30), ({"steps": 5000}, 200), ({"epochs": 10}, 30), ({}, 30)],
)
def test_the_search_takes_thirty_steps_or_four_percent(length, searched):
    # A rate so near to the first one is found long before the thirtieth step.
    assert tuned(1e-6, **length)[1] == searched


def test_the_search_goes_on_while_the_estimate_rises():
    _, steps = tuned(3e4, steps=600)
    assert steps > 30


# Of three rates within a factor of two, rounded to eight a decade, in units of their mean; at most.
DEVIATION = 0.45


def test_the_rates_are_held_and_fall_to_nothing_over_the_last_quarter():
    total, best, window = 20_000, 0.1, 1000
    strategy, searched = tuned(best, steps=total)
    peak = strategy.peak
    rates = drive(strategy, Landscape(best), total - searched, seed=1)
    for start in range(0, len(rates) - window, window):
        centres = [
            peak * min((total - step) / 5000, 1.0)
            for step in range(searched + start, searched + start + window)
        ]
        found = rates[start : start + window]
        assert sum(found) / window == pytest.approx(
            sum(centres) / window, abs=DEVIATION * centres[0] * 4 / math.sqrt(window)
        )
        neighbour = 10 ** (1 / 8) * 1.01
        for rate, centre in zip(found, centres, strict=True):
            assert 0.5 * centre / neighbour < rate < 2 * centre * neighbour
        assert len(set(found)) > 3  # more than the two members of H around each centre
    assert strategy.peak == peak
    assert max(rates[-10:]) <= 2 * peak * 10 / 5000 * neighbour


@pytest.mark.parametrize(("arguments", "epoch"), [({"steps": 300}, None), ({"epochs": 15}, 20)])
def test_at_the_end_and_past_it_the_rate_is_the_lowest(arguments, epoch):
    strategy = SelfTuning(**arguments)
    rates = drive(strategy, Landscape(0.1, noise=0.3), 400, epoch)
    assert min(rates[100:300]) > 1e-5
    assert set(rates[300:]) == {RATES[0]}


def test_without_a_length_they_do_not_decay():
    strategy, _ = tuned()
    rates = drive(strategy, Landscape(0.1), 20_000, epoch=50, seed=1)
    tolerance = 4 * DEVIATION * strategy.peak / math.sqrt(2000)
    for part in (rates[:2000], rates[-2000:]):
        assert sum(part) / len(part) == pytest.approx(strategy.peak, abs=tolerance)


def test_a_length_in_epochs_is_the_same_as_one_in_steps():
    # The second epoch is the first whose length is known, and the search ends in it.
    runs = [
        drive(SelfTuning(**length), Landscape(0.1, noise=0.3), 250, epoch=20)
        for length in ({"epochs": 10}, {"steps": 200})
    ]
    assert runs[0] == runs[1]


def test_in_the_first_of_some_epochs_nothing_decays_for_its_length_is_unknown():
    strategy = SelfTuning(epochs=4)
    rates = drive(strategy, Landscape(0.1), 4000, epoch=1000)
    for epoch, left in enumerate([1.0, 1.0, 1.0, 0.5]):  # in the middle of an epoch
        window = rates[epoch * 1000 + 400 : epoch * 1000 + 600]
        tolerance = 4 * DEVIATION * left * strategy.peak / math.sqrt(len(window))
        assert sum(window) / len(window) == pytest.approx(left * strategy.peak, abs=tolerance)


@pytest.mark.parametrize(
    ("worsening", "factor"),
    [(0.99, 1.0), (1.01, 0.5), (1e9, 0.5), (INF, 0.5), (NAN, 0.5), (-0.5, 1.0)],
)
def test_what_worsens_beyond_the_highest_level_halves_the_peak(worsening, factor):
    strategy, _ = tuned()  # on losses of 1
    rng, peak = random.Random(0), strategy.peak
    setting = strategy.pick(H, rng)
    verdict = strategy.decide(1.0, 1.0 + worsening, rng)
    strategy.observe(setting, verdict)
    assert verdict.accepted == (worsening < 0.2)
    assert strategy.peak == factor * peak


@pytest.mark.parametrize("broken", [NAN, INF, -INF])
def test_where_everything_breaks_it_ends_with_next_to_nothing(broken):
    strategy, rng = SelfTuning(steps=1000), random.Random(0)
    for _ in range(100):
        setting = strategy.pick(H, rng)
        verdict = strategy.decide(1.0, broken, rng)
        assert not verdict.accepted
        strategy.observe(setting, verdict)
        strategy.tick("step")
    assert 0 < strategy.peak < 1e-8


def test_where_nothing_moves_it_goes_on_searching_within_its_rates():
    strategy, rng = SelfTuning(), random.Random(0)
    for _ in range(300):
        setting = strategy.pick(H, rng)
        strategy.observe(setting, strategy.decide(1.0, 1.0, rng))
        strategy.tick("step")
    assert strategy.peak is None
    assert setting["lr"] in (RATES[-1], RATES[-1] / 2, pytest.approx(RATES[-1] / 2, rel=0.34))


def test_the_search_is_measured_and_the_run_is_not_but_for_what_promises_harm():
    strategy, rng = SelfTuning(steps=300), random.Random(0)
    assert isinstance(strategy, Screenable)
    landscape = Landscape(0.1)
    while strategy.peak is None:
        strategy.pick(H, rng)
        assert strategy.bound(1.0, rng) is None
        step(strategy, rng, landscape)
    bounds = []
    for _ in range(200):
        step(strategy, rng, landscape)
        bounds.append(strategy.bound(1.0, rng))
    assert set(bounds) == {INF}
    strategy.peak = 1e3  # far beyond the zero of the parabola
    strategy.pick(H, rng)
    assert strategy.bound(1.0, rng) is None


def test_a_predicted_value_is_accepted_and_teaches_nothing():
    strategy, _ = tuned(steps=300)
    strategy.decide(1.0, 1.0, random.Random(0))
    before = strategy.state_dict()
    verdict = strategy.decide(1.0, Predicted(1e6), random.Random(0))
    assert (verdict.accepted, verdict.worsening) == (True, 1e6 - 1)
    assert strategy.state_dict() == before


def test_a_pick_takes_exactly_two_draws(scripted):
    for strategy in (SelfTuning(), tuned()[0], tuned(steps=30)[0]):
        rng = scripted(0.3, 0.6)
        strategy.pick(H, rng)
        assert rng.numbers == []


@pytest.mark.parametrize("length", [{"steps": 200}, {"epochs": 10}, {}])
@pytest.mark.parametrize("cut", [0, 3, 29, 30, 55, 120, 230])
def test_saved_as_json_text_it_continues_the_very_same(through_json, length, cut):
    landscape, rng = Landscape(0.02, noise=0.5), random.Random(3)
    strategy, twin, rates = SelfTuning(**length), SelfTuning(**length), ([], [])
    twin_landscape, twin_rng = Landscape(0.02, noise=0.5), random.Random(3)
    for number in range(260):
        if number == cut:
            twin = through_json(twin, SelfTuning(**length))
        rates[0].append(step(strategy, rng, landscape))
        rates[1].append(step(twin, twin_rng, twin_landscape))
        if number % 20 == 19:
            strategy.tick("epoch")
            twin.tick("epoch")
    assert rates[0] == rates[1]
    assert twin.state_dict() == strategy.state_dict()
    assert twin.peak == strategy.peak is not None


def test_saved_between_pick_and_decision_it_still_knows_what_was_promised(through_json):
    strategy, _ = tuned(steps=300)
    strategy.peak = 1e3
    strategy.pick(H, random.Random(0))
    assert through_json(strategy, SelfTuning(steps=300)).bound(1.0, random.Random(0)) is None


@pytest.mark.parametrize(
    "given", [grid(lr=[0.1, 0.15]), grid(lr=[0.1], momentum=[0.9]), grid(momentum=[0.9])]
)
def test_a_neighborhood_of_the_users_is_refused(given):
    with pytest.raises(ValueError, match=r"SelfTuning finds its own .*HeatBath"):
        SelfTuning().check(given)


def test_its_own_neighborhood_is_not_nor_a_part_of_it():
    SelfTuning().check(H)
    SelfTuning().check(grid(lr=RATES[5:50]))
    assert Setting({"lr": 1e-3}) in H
    assert (RATES[0], RATES[-1], len(H)) == (1e-9, 1e5, 113)


@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        ({"steps": 0}, ValueError, ["SelfTuning(steps=...)", "0"]),
        ({"epochs": -1}, ValueError, ["SelfTuning(epochs=...)", "-1"]),
        ({"epochs": 2.5}, TypeError, ["SelfTuning(epochs=...)", "2.5"]),
        ({"steps": 7, "epochs": 8}, ValueError, ["steps=..., epochs=...", "one length", "7", "8"]),
        ({"caution": 0.0}, ValueError, ["SelfTuning(caution=...)", "positive", "0.0"]),
        ({"caution": NAN}, ValueError, ["SelfTuning(caution=...)", "positive", "nan"]),
        ({"prior": -1.0}, ValueError, ["SelfTuning(prior=...)", "positive", "-1.0"]),
        ({"prior": INF}, ValueError, ["SelfTuning(prior=...)", "positive", "inf"]),
    ],
)
def test_bad_input_names_class_argument_rule_and_value(arguments, error, parts):
    with pytest.raises(error) as caught:
        SelfTuning(**arguments)
    assert [part for part in parts if part not in str(caught.value)] == []
