"""Which rates a run that is given nothing begins with, and what they may become."""

import pytest
import torch
from torch.nn import functional as F

from annealtune import EmbeddedTuner


@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.Adam])
def test_rates_that_the_base_refuses_are_not_picked(base, net, make_batches):
    class Timid(base):
        def __init__(self, params, lr=0.001):
            if lr > 0.0002:
                raise ValueError("too fast")
            super().__init__(params, lr=lr)

    tuner = EmbeddedTuner(Timid(net.parameters(), lr=0.0001), model=net, total_steps=60)
    for x, y in make_batches(60):
        tuner.step(lambda x=x, y=y: F.cross_entropy(net(x), y))
        assert tuner.last_step.setting["lr"] <= 0.0002
    assert tuner.strategy.peak <= 0.0002  # also where a prior draws it up


@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.AdamW])
def test_a_short_run_searches_for_half_of_it_and_then_decays(base, net, make_batches):
    tuner = EmbeddedTuner(base(net.parameters()), model=net, total_steps=40)
    rates = []
    for x, y in make_batches(40):
        tuner.step(lambda x=x, y=y: F.cross_entropy(net(x), y))
        rates.append(tuner.last_step.setting["lr"])
        assert (tuner.strategy.peak is None) == (len(rates) < 20)
    assert tuner.probes.probed < 30
    assert rates[-1] < 0.2 * tuner.strategy.peak


class OurAdam(torch.optim.Adam):
    pass


@pytest.mark.parametrize(
    ("base", "is_kin"),
    [
        (torch.optim.Adam, True),
        (torch.optim.AdamW, True),
        (torch.optim.NAdam, True),
        (torch.optim.RAdam, True),
        (OurAdam, True),
        (torch.optim.SGD, False),
        (torch.optim.RMSprop, False),
    ],
)
def test_with_adam_and_its_kin_the_search_begins_near_a_rate_that_suits_most(
    base, is_kin, net, make_batches
):
    tuner = EmbeddedTuner(base(net.parameters(), lr=0.5), model=net)
    ((x, y),) = make_batches(1)
    tuner.step(lambda: F.cross_entropy(net(x), y))
    rate = tuner.last_step.setting["lr"]
    assert 1e-5 < rate < 1e-4 if is_kin else rate <= 2e-7
