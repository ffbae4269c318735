"""Groups of different rates keep their ratios, whatever rate H picks."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, grid


def groups_of(net, **body):
    return [
        {"params": [*net.first.parameters(), *net.norm.parameters()], **body},
        {"params": net.last.parameters()},
    ]


def rates_of(tuner):
    return [group["lr"] for group in tuner.param_groups]


def steps(net, tuner, batches):
    for x, y in batches:
        tuner.step(lambda x=x, y=y: F.cross_entropy(net(x), y))
        yield tuner.last_step.setting["lr"]


GROUPS = {  # options of the first group, the rate of the second, and the ratio that is kept
    "rates": ({"lr": 1e-5}, 1e-3, 0.01),
    "layer decay as timm writes it": ({"lr_scale": 0.5}, 0.1, 0.5),
    "one tensor for both groups": ({"lr_scale": 0.5}, torch.tensor(0.1), 0.5),
}


@pytest.mark.parametrize(("options", "given", "ratio"), GROUPS.values(), ids=GROUPS)
def test_a_rate_of_h_is_that_of_the_largest_group(net, make_batches, options, given, ratio):
    base, value = torch.optim.AdamW(groups_of(net, **options), lr=given), float(given)
    tuner = EmbeddedTuner(base, net, neighborhood=grid(lr=[1.0, 0.5]), temperature=math.inf)
    for rate in steps(net, tuner, make_batches(6)):
        assert rates_of(tuner) == [pytest.approx(ratio * rate), rate]
    added = {"params": [nn.Parameter(torch.ones(1))], "lr": 2 * value}
    tuner.add_param_group(added)
    for rate in steps(net, tuner, make_batches(2)):
        assert rates_of(tuner) == [pytest.approx(ratio * rate), rate, 2 * rate]


def test_a_rejection_puts_each_rate_back(net, make_batches):
    base = torch.optim.SGD(groups_of(net, lr=0.25), lr=0.5)
    tuner = EmbeddedTuner(base, net, neighborhood=grid(lr=[1e30]), temperature=0.0)
    list(steps(net, tuner, make_batches(2)))
    assert rates_of(tuner) == [0.25, 0.5]


def test_ratios_need_a_rate(net):
    base = torch.optim.SGD(net.parameters(), lr=0.0)
    with pytest.raises(ValueError, match=r"EmbeddedTuner\(base=...\)"):
        EmbeddedTuner(base, net, neighborhood=grid(lr=[0.1]))
    tuner = EmbeddedTuner(base, net, neighborhood=grid(momentum=[0.0, 0.9]))
    assert rates_of(tuner) == [0.0]  # where H does not set it


def test_values_by_option_are_a_grid(net):
    choices = {"lr": [0.1, 0.2], "momentum": [0.0, 0.9]}
    base = torch.optim.SGD(net.parameters(), lr=0.1)
    for tuner in (SGDSA(net, choices), EmbeddedTuner(base, net, neighborhood=choices)):
        assert tuner.neighborhood == grid(**choices)
    with pytest.raises(TypeError, match="neighborhood"):
        SGDSA(net, {"lr": 0.1})
