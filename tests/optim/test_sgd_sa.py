"""SGDSA: the paper's set H and its presets; for `paper-text` see tests/test_reference.py."""

import math
import random

import pytest
import torch
from torch.nn import functional as F

from annealtune import SGDSA, Setting, grid
from annealtune.annealing import PAPER_RATES
from annealtune.temperatures import Geometric, Reheating


def test_the_rates_are_those_of_section_4(net):
    rates = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.09, 0.08, 0.07, 0.06, 0.05]
    assert [h["lr"] for h in SGDSA(net, preset="paper-text").neighborhood] == rates
    assert [h["lr"] for h in SGDSA(net, temperature=1.0).neighborhood] == rates
    assert list(PAPER_RATES) == rates


def paper_code_by_hand(model, epochs, rates, seed, batch_size):
    """What the experiments computed: both losses in evaluation mode, after backward, and the
    temperature in units of the mean loss, so T0 is the batch size, the floor 1e-14 times it.
    """
    rng, temperature, history = random.Random(seed), float(batch_size), []
    weights = list(model.parameters())
    for batches in epochs:
        for x, y in batches:
            gradient = torch.autograd.grad(F.cross_entropy(model(x), y), weights)
            model.eval()
            with torch.no_grad():
                loss = F.cross_entropy(model(x), y).item()
                rate = rates[int(rng.random() * len(rates))]
                old = [p.clone() for p in weights]
                for p, g in zip(weights, gradient, strict=True):
                    p.add_(g, alpha=-rate)
                worsening = F.cross_entropy(model(x), y).item() - loss
                accepted = rng.random() < math.exp(min(-worsening / temperature, 0.0))
                if not accepted:
                    for p, o in zip(weights, old, strict=True):
                        p.copy_(o)
            model.train()
            history.append((rate, loss, worsening, accepted, temperature))
        temperature = max(0.8 * temperature, 1e-14 * batch_size)
    return history


def test_paper_code_against_a_loop_by_hand(make_net, make_batches, bits):
    rates = [60.0, 20.0, 5.0, 0.5]
    epochs = [make_batches(25, seed=seed) for seed in range(8)]
    by_hand, ours = make_net(), make_net()
    torch.manual_seed(1)
    expected = paper_code_by_hand(by_hand, epochs, rates, seed=9, batch_size=16)
    random_state = torch.get_rng_state()

    tuner = SGDSA(ours, grid(lr=rates), preset="paper-code", batch_size=16, seed=9)
    torch.manual_seed(1)
    history = []
    for batches in epochs:
        for x, y in batches:
            tuner.step(lambda x=x, y=y: F.cross_entropy(ours(x), y))
            info = tuner.last_step
            move = info.setting["lr"], info.loss, info.worsening, info.accepted, info.temperature
            history.append(move)
        tuner.cool()

    assert history == expected
    assert bits(ours.state_dict()) == bits(by_hand.state_dict())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert {accepted for *_, accepted, _ in history} == {True, False}


@pytest.mark.parametrize(
    ("options", "first", "after_two", "after_many"),
    [
        ({"preset": "paper-text"}, 1.0, 0.8 * 0.8, 0.0),
        ({"preset": "paper-code", "batch_size": 512}, 512.0, 512 * 0.64, 512e-14),
        ({"preset": "paper-text", "temperature": 3.0}, 3.0, 3 * 0.64, 0.0),
        ({"preset": "paper-code", "batch_size": 4, "temperature": 2}, 2.0, 2 * 0.64, 4e-14),
        ({"preset": "paper-text", "temperature": 0.0}, 0.0, 0.0, 0.0),
        ({"preset": "paper-code", "batch_size": 4, "temperature": math.inf}, *[math.inf] * 3),
        ({"preset": "paper-text", "temperature": Geometric(5.0, 0.5)}, 5.0, 1.25, 0.0),
        ({"temperature": 0.3}, 0.3, 0.3, 0.3),
        ({"temperature": Geometric(5.0, 0.5, floor=0.1)}, 5.0, 1.25, 0.1),
        ({"temperature": Reheating(Geometric(1.0, 0.5), every=2, times=1)}, 1.0, 1.0, 0.0),
        ({"neighborhood": grid(lr=[0.1])}, 0.0, 0.0, 0.0),
        ({"neighborhood": grid(lr=[0.1]), "epochs": 9}, 0.0, 0.0, 0.0),
    ],
)
def test_the_temperature_is_what_was_asked_for(options, first, after_two, after_many, net):
    tuner = SGDSA(net, **options)
    assert tuner.temperature == first
    for _ in range(2):
        tuner.cool()
    assert tuner.temperature == pytest.approx(after_two)
    for _ in range(3500):
        tuner.cool()
    assert tuner.temperature == pytest.approx(after_many, abs=1e-300)


def test_schedules_per_step_cool_inside_step_and_not_at_the_end_of_an_epoch(net, loss_of):
    tuner = SGDSA(net, temperature=Geometric(1.0, 0.5, per="step"))
    tuner.step(loss_of)
    tuner.cool()
    assert tuner.last_step.temperature == 1.0
    assert tuner.temperature == 0.5


def test_the_default_temperature_finds_its_unit_and_reaches_its_end(make_net, make_batches):
    net, batches = make_net(), make_batches(50)
    tuner = SGDSA(net, grid(lr=[20.0, 1.0, 0.1]), total_steps=100)
    sizes = []
    for step in range(100):
        x, y = batches[step % 50]
        tuner.step(lambda x=x, y=y: F.cross_entropy(net(x), y))
        sizes.append(abs(tuner.last_step.worsening))
    first = sorted(size for size in sizes[:32] if size)
    assert len(first) == 32
    unit = (first[15] + first[16]) / 2
    assert tuner.strategy.schedule.unit == pytest.approx(unit)
    assert tuner.last_step.temperature == pytest.approx(tuner.strategy.schedule.end * unit)


def test_momentum_nesterov_or_neither_as_choices(net, loss_of):
    tuner = SGDSA(
        net, grid(lr=[0.1, 0.05], momentum=[0.0, 0.9], nesterov=[False, True]), temperature=0.0
    )
    refused = {Setting({"lr": lr, "momentum": 0.0, "nesterov": True}) for lr in (0.1, 0.05)}
    assert set(tuner.neighborhood.dropped) == refused
    assert len(tuner.neighborhood) == 6
    for _ in range(60):
        tuner.step(loss_of)
        assert tuner.last_step.setting not in refused
    assert set(tuner.moves.settings) == set(tuner.neighborhood)
    assert all(count.tried for count in tuner.moves.settings.values())
