"""The centre of the first race: known for torch's Adams, else from the first gradient."""

import functools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SelfTuner

STEPS = 500


class Madam(torch.optim.SGD):
    """Has Adam in its name only."""


class Ours(torch.optim.AdamW):
    """One of torch's, whatever its name."""


def noisy_classes():
    """Inputs and the noisy classes that a net with one hidden layer gives them."""
    torch.manual_seed(1)
    inputs = torch.randn(3000, 20)
    outputs = torch.relu(inputs @ torch.randn(20, 32)) @ torch.randn(32, 5)
    return inputs, (outputs + 2 * torch.randn(3000, 5)).argmax(1)


def final_loss(make, rate=None):
    """Train at a rate, or tuned; return the loss over all rows, and the rate."""
    inputs, classes = noisy_classes()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)
    )
    optimizer = make(model.parameters(), lr=rate or 0.1)
    compute_loss = lambda x, y: F.cross_entropy(model(x), y)
    if rate is None:
        optimizer = SelfTuner(optimizer, model, total_steps=STEPS)
        compute_loss = optimizer.record(compute_loss)
    torch.manual_seed(3)
    for step in range(STEPS):
        if rate is not None:  # the tuner's own schedule
            rising, falling = (step + 1) / (STEPS // 20), (STEPS - step) / (STEPS // 4)
            optimizer.param_groups[0]["lr"] = rate * min(1.0, rising, falling)
        rows = torch.randint(3000, (32,))
        optimizer.zero_grad()
        compute_loss(inputs[rows], classes[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        loss = F.cross_entropy(model(inputs), classes).item()
    return (loss if math.isfinite(loss) else math.inf), rate or optimizer.races[-1].rate


@pytest.mark.parametrize(
    ("make", "decade"),
    [
        pytest.param(torch.optim.RMSprop, -3, id="RMSprop", marks=pytest.mark.slow),
        pytest.param(torch.optim.Adagrad, -2, id="Adagrad", marks=pytest.mark.slow),
        pytest.param(
            functools.partial(torch.optim.SGD, momentum=0.9), -3, id="SGD", marks=pytest.mark.slow
        ),
    ],
)
def test_the_rate_is_within_a_factor_of_four_of_the_best_of_a_grid(make, decade):
    _, best = min(final_loss(make, 10 ** (decade + n / 2)) for n in range(5))
    _, chosen = final_loss(make)
    assert best / 4 <= chosen <= best * 4


@pytest.mark.parametrize(
    ("kind", "is_adam"),
    [(Madam, False), (torch.optim.SGD, False), (Ours, True), (torch.optim.NAdam, True)],
)
def test_an_ancestor_makes_an_adam_and_a_name_does_not(kind, is_adam):
    torch.manual_seed(0)
    model, inputs = nn.Linear(6, 1), torch.randn(16, 6)
    opt = SelfTuner(kind(model.parameters(), lr=0.1), model, total_steps=300)
    while opt.is_racing:
        opt.step(lambda: F.mse_loss(model(inputs), inputs.sum(1, keepdim=True)))
    assert (3e-3 in [setting["lr"] for setting in opt.races[0].settings]) == is_adam


def test_matrices_that_get_no_gradient_do_not_move_it():
    def rate(*extra):
        torch.manual_seed(0)
        model, x = nn.Linear(6, 1), torch.randn(16, 6)
        base = torch.optim.SGD([*model.parameters(), *extra], lr=0.1)
        opt = SelfTuner(base, model, total_steps=300)
        opt.step(lambda: F.mse_loss(model(x), x.sum(1, keepdim=True)))
        return opt.lr

    assert rate() == rate(nn.Parameter(torch.randn(300, 300)))


def test_a_base_that_writes_into_its_gradients_has_the_same_centre():
    def rate(*, foreach):
        torch.manual_seed(0)
        model = nn.Linear(6, 1)
        options = {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": foreach}
        opt = SelfTuner(torch.optim.SGD(model.parameters(), **options), model, total_steps=STEPS)
        opt.step(lambda: F.mse_loss(model(torch.ones(4, 6)), torch.zeros(4, 1)))
        return opt._run.races.centre

    assert rate(foreach=True) == pytest.approx(rate(foreach=False), rel=1e-4)
