"""One iteration of Algorithm 2; against the algorithm by hand see tests/test_reference.py."""

import math

import pytest
import torch
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, NonFiniteLossError, grid


@pytest.mark.parametrize("schedule", [{}, {"total_steps": 150}, {"epochs": 3}])
def test_decisions_do_not_depend_on_the_scale_of_the_accept_test(schedule, make_net, make_batches):
    batches = make_batches(50)

    def decisions(scale):
        model = make_net()
        tuner = SGDSA(model, grid(lr=[5.0, 1.0, 0.1]), seed=1, **schedule)
        torch.manual_seed(1)
        accepted = []
        for _ in range(3):
            for x, y in batches:
                tuner.step(
                    lambda x=x, y=y: F.cross_entropy(model(x), y),
                    objective=lambda x=x, y=y: scale * F.cross_entropy(model(x), y),
                )
                accepted.append(tuner.last_step.accepted)
            tuner.cool()
        return accepted, tuner.last_step.loss

    accepted, last = decisions(1.0)
    scaled, scaled_last = decisions(1024.0)
    assert accepted == scaled
    assert scaled_last == 1024 * last
    assert 0 < accepted.count(False) < 118  # decisions were made, after 32 probes


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [math.inf, 1.0, 0.0])
def test_a_broken_tentative_point_is_rejected(broken, temperature, net, loss_of, bits):
    tuner = SGDSA(net, grid(lr=[0.1]), temperature=temperature)
    weights = bits(list(net.parameters()))
    first = bits(net.first.weight)
    tuner.step(lambda: loss_of() if bits(net.first.weight) == first else loss_of() * broken)
    info = tuner.last_step
    assert not info.accepted
    assert not math.isfinite(info.new_loss)
    assert info.accept_probability == 0
    assert not info.improved
    assert bits(list(net.parameters())) == weights


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_broken_current_point_is_an_error_with_history(
    way, loss_function, broken, net, batch, bits
):
    x, y = batch
    tuner = SGDSA(net, grid(lr=[0.1, 0.05]), temperature=math.inf, seed=2)
    step = way(tuner, loss_function(net))
    for _ in range(3):
        step(x, y)
    weights = bits(list(net.parameters()))
    with pytest.raises(NonFiniteLossError, match=r"SGDSA\.step.*step 3"):
        step(x * broken, y)
    assert bits(list(net.parameters())) == weights
    assert tuner.moves.total.tried == 3

    net.norm.reset_running_stats()
    tuner.zero_grad()
    step(x, y)
    assert tuner.last_step.step == 3


def test_a_rate_that_is_a_tensor_stays_that_tensor(net, loss_of):
    rate = torch.tensor(4.0)
    base = torch.optim.Adam(net.parameters(), lr=rate, capturable=False, foreach=False)
    tuner = EmbeddedTuner(base, net, neighborhood=grid(lr=[8.0, 0.125]), temperature=0.0)
    for _ in range(20):
        before = rate.item()
        tuner.step(loss_of)
        info = tuner.last_step
        assert base.param_groups[0]["lr"] is rate
        assert rate.item() == (info.setting["lr"] if info.accepted else before)
    assert 0 < tuner.moves.total.accepted < 20
