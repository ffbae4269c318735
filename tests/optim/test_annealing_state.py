"""Temperatures that cool per epoch: one epoch, and a loop that never tells of any."""

import math
import warnings

import pytest

from annealtune import SGDSA, Automatic, Geometric, StochasticSA, grid
from annealtune.optim import annealing_state


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(annealing_state, "_PATIENCE", 10)
    monkeypatch.setattr(annealing_state, "_PATIENCE_WITH_EPOCHS", 20)


H = grid(lr=[0.1, 0.05])
PER_EPOCH = {
    "as README prints it": lambda net: SGDSA(net, preset="paper-text"),
    "as published": lambda net: SGDSA(net, preset="paper-code", batch_size=16),
    "geometric": lambda net: SGDSA(net, H, temperature=Geometric(1.0, 0.8)),
    "automatic": lambda net: SGDSA(net, H, temperature=Automatic(length=9)),
    "without gradients": lambda net: StochasticSA(net, preset="paper-text"),
}


@pytest.mark.parametrize("make", PER_EPOCH.values(), ids=PER_EPOCH)
def test_one_that_never_hears_of_an_epoch_warns_once(make, net, loss_of):
    optimizer = make(net)
    for _ in range(9):
        optimizer.step(loss_of)
    with pytest.warns(UserWarning, match=r"cool\(\) must be called .* got 10 steps without it"):
        optimizer.step(loss_of)
    for _ in range(30):
        optimizer.step(loss_of)


def test_with_a_known_number_of_epochs_it_waits_longer(net, loss_of):
    tuner = SGDSA(net, H, epochs=5)
    for _ in range(19):
        tuner.step(loss_of)
    with pytest.warns(UserWarning, match=r"SGDSA: .*20 steps.*SGDSA\(epochs=...\)"):
        tuner.step(loss_of)


@pytest.mark.parametrize(
    "options",
    [{}, {"total_steps": 50}, {"temperature": 1.0}, {"temperature": Geometric(1, 0.9, per="step")}],
)
def test_others_do_not(options, net, loss_of):
    tuner = SGDSA(net, H, **options)
    for _ in range(30):
        tuner.step(loss_of)


def test_nor_one_that_has_heard_of_an_epoch_also_before_a_resume(make_net, net, loss_of):
    tuner = SGDSA(net, H, preset="paper-text")
    for _ in range(8):
        tuner.step(loss_of)
    tuner.cool()
    resumed = SGDSA(net, H, preset="paper-text")
    resumed.load_state_dict(tuner.state_dict())
    for optimizer in (tuner, resumed):
        for _ in range(10):
            optimizer.step(loss_of)


def test_a_single_epoch_cools_all_the_same(net, loss_of):
    """Nothing ends before the run does, so the temperature must fall by the steps."""
    tuner = SGDSA(net, H, epochs=1)
    temperatures = []
    for _ in range(200):
        tuner.step(loss_of)
        temperatures.append(tuner.last_step.temperature)
    unit = tuner.strategy.schedule.unit
    assert temperatures[40] > 2 * unit
    assert temperatures[-1] == pytest.approx(3 * unit / (1 + (199 - 31) / 32))


def test_an_interrupted_measurement_of_the_unit_goes_on():
    schedule = Automatic(probes=3)
    for _ in range(3):
        schedule._measured.append(1.0)  # the last one was cut off before it was counted
    schedule.observe(5.0)
    assert schedule.unit == 1.0
    assert math.isfinite(schedule.temperature)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule.tick("step")
