"""Models, bases and loops that are not quite usual."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from annealtune import SelfTuner


def inputs(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(step))
    return x, x.sum(1, keepdim=True)


def trained(model, base, steps=300, **options):
    opt = SelfTuner(base, model, total_steps=300, **options)
    compute_loss = opt.record(lambda x, y: functional.mse_loss(model(x), y))
    for step in range(steps):
        compute_loss(*inputs(step)).backward()
        opt.step()
        opt.zero_grad()
    return opt


def final_loss(model) -> float:
    model.eval()
    with torch.no_grad():
        x, y = inputs(10_000)
        return functional.mse_loss(model(x), y).item()


def test_gradients_of_another_optimizers_parameters_are_left_alone():
    torch.manual_seed(0)
    body, head = nn.Linear(6, 8), nn.Linear(8, 1)
    model = nn.Sequential(body, nn.ReLU(), head)
    opt = SelfTuner(torch.optim.AdamW(body.parameters()), model, total_steps=300)
    compute_loss = opt.record(lambda x, y: functional.mse_loss(model(x), y))
    for step in range(5):
        compute_loss(*inputs(step)).backward()
        before = head.weight.grad.clone()
        opt.step()
        assert torch.equal(head.weight.grad, before)
        model.zero_grad()


def test_matrices_that_get_no_gradient_do_not_move_the_centre():
    def rate(*extra: nn.Parameter) -> float:
        torch.manual_seed(0)
        model = nn.Linear(6, 1)
        base = torch.optim.SGD([*model.parameters(), *extra], lr=0.1)
        opt = SelfTuner(base, model, total_steps=300)
        opt.step(lambda: functional.mse_loss(model(inputs(0)[0]), inputs(0)[1]))
        return opt.lr

    assert rate() == rate(nn.Parameter(torch.randn(300, 300)))


class Rotary(nn.Module):
    """Makes a buffer in its first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 1)
        self.register_buffer("cache", None)

    def forward(self, x):
        if self.cache is None:
            self.cache = torch.ones(6)
        return self.linear(x * self.cache)


class Alias(nn.Module):
    """Has a buffer that is a view of its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 1)
        self.register_buffer("view", self.linear.weight.data)

    def forward(self, x):
        return self.linear(x)


@pytest.mark.parametrize(
    "make",
    [Rotary, Alias, lambda: nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Linear(8, 1))],
    ids=["a buffer made late", "a buffer that is a weight", "lazy layers"],
)
def test_buffers_that_are_not_there_or_not_alone(make):
    torch.manual_seed(0)
    model = make()
    opt = trained(model, torch.optim.AdamW(model.parameters()))
    assert final_loss(model) < 0.5
    assert all(map(math.isfinite, opt.races[0].scores))


def test_a_base_that_draws_numbers_draws_others_at_every_step():
    drawn = []

    class Noisy(torch.optim.SGD):
        def step(self, closure=None):
            drawn.append(torch.randn(()).item())
            return super().step()

    model = nn.Linear(6, 1)
    trained(model, Noisy(model.parameters(), lr=0.1), steps=3, around=0.01)
    assert len(set(drawn)) == 3  # the same for every arm, others for every minibatch


def test_the_first_weights_are_the_safe_ones_of_a_run_too_short_for_a_race():
    model = nn.Linear(6, 1)
    base = torch.optim.SGD(model.parameters(), lr=1.0)
    opt = SelfTuner(base, model, total_steps=100, around=1e12)
    first = model.weight.detach().clone()

    def step_until_it_breaks():
        while not any("averaged weights" in event.text for event in opt.history.events):
            x, y = inputs(opt.steps)
            opt.step(lambda x=x, y=y: functional.mse_loss(model(x), y))

    with pytest.warns(UserWarning, match=r"too few for a race|back to the averaged weights"):
        step_until_it_breaks()
    assert torch.equal(model.weight, first)
    assert opt.lr == pytest.approx(0.25e12)


@pytest.mark.parametrize("what", ["a term", "clipping"])
def test_what_the_loop_does_outside_the_recorded_function_is_noticed(what):
    model = nn.Linear(6, 1)
    opt = SelfTuner(torch.optim.AdamW(model.parameters()), model, total_steps=300)
    loss = opt.record(lambda x, y: functional.mse_loss(model(x), y))(*inputs(0))
    (loss + (model.weight.square().sum() if what == "a term" else 0)).backward()
    if what == "clipping":
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    with pytest.warns(UserWarning, match="before_step"):
        opt.step()
