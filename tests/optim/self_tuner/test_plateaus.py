"""On a plateau, where no arm is better than another, the rate does not sink."""

from unittest import mock

import torch
from torch import nn

from annealtune import SelfTuner
from annealtune.annealing.race import Standings

CENTRE = 3e-3


def found_rate(seed):
    """The rate after races on a loss that says nothing: it follows the last digits of w."""
    torch.manual_seed(seed)
    weight = nn.Parameter(torch.randn(4))
    opt = SelfTuner(torch.optim.AdamW([weight]), total_steps=1000, seed=seed)
    compute_loss = opt.record(lambda: torch.sin(1e6 * weight.sum()))
    while opt.is_racing:
        compute_loss().backward()
        opt.step()
        opt.zero_grad()
    return opt.races[-1].rate


def test_noise_does_not_send_the_rate_down():
    seeds = range(12)
    assert min(map(found_rate, seeds)) >= CENTRE / 4  # a safer one lies next to the incumbent
    with mock.patch.object(Standings, "steadier", lambda _, outcome, *__: outcome):
        assert min(map(found_rate, seeds)) < CENTRE / 50  # so it was without the rule
