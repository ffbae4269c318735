"""Running statistics of BatchNorm that one minibatch breaks, and tensors of unusual kinds."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SGDSA, NonFiniteLossError, SelfTuner


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


@pytest.mark.parametrize("when", [3, 200])  # in the race, and after it
def test_one_huge_value_does_not_spoil_the_rest(when):
    """The variance overflows; weights, loss and gradient stay finite."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = SelfTuner(adamw(model), model, total_steps=300)
    inputs = torch.randn(64, 3)
    targets = inputs.sum(1, keepdim=True)
    for step in range(300):
        given = inputs.clone()
        given[0, 0] = 1e25 if step == when else given[0, 0]

        def closure(given=given):
            optimizer.zero_grad()
            loss = F.mse_loss(model(given), targets)
            loss.backward()
            return loss

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step(closure)
    model.eval()
    with torch.no_grad():
        assert F.mse_loss(model(inputs), targets) < 0.05
        with optimizer.averaged():
            assert F.mse_loss(model(inputs), targets) < 0.05
    if when == 200:
        assert any("BatchNorm broke" in event.text for event in optimizer.history.events)


@pytest.mark.parametrize("steps", [60, 400])  # too few for a race, and enough
def test_weights_that_are_broken_from_the_start_are_an_error(steps):
    net = nn.Embedding(5, 2)
    net.weight.data[4, 0] = torch.nan  # a row that no minibatch uses
    optimizer = SelfTuner(adamw(net), net, total_steps=steps)

    def train():
        for _ in range(steps):
            optimizer.step(lambda: net(torch.tensor([0, 1])).square().sum())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(NonFiniteLossError, match="must be finite"):
            train()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.complex64])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_one_broken_weight_of_many_is_noticed(dtype, value):
    """Whatever the objective says of it; large finite ones, whose sum overflows, are sound."""
    weight = nn.Parameter(torch.full((3, 7, 5), 1e4, dtype=dtype))
    tuner = SGDSA(nn.ParameterList([weight]), {"lr": [0.5]}, temperature=torch.inf)
    for broken in (False, True):
        factor = torch.zeros(3, 7, 5, dtype=dtype)
        factor[1, 3, 2] = value if broken else 0.0
        tuner.step(lambda: weight.abs()[0, 0, 0].float() * 0, objective=lambda: 1.0)
        assert tuner.last_step.accepted
        hook = weight.register_hook(lambda grad, factor=factor: grad + factor)
        tuner.step(lambda: weight.abs()[0, 0, 0].float() * 0, objective=lambda: 1.0)
        hook.remove()
        assert tuner.last_step.accepted != broken
        assert weight.isfinite().all()
