"""What a loop does that cannot reach every arm is said, with what to write instead."""

import io
import random
from itertools import count

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import EmbeddedTuner, SelfTuner, grid


def inputs(number):
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(number))
    return x, x.sum(1, keepdim=True)


def raced(model, loss_of, parameters=None):
    """Return a tuner whose race begins with the first step, and the function to call."""
    parameters = model.parameters() if parameters is None else parameters
    opt = SelfTuner(torch.optim.AdamW(parameters), model, total_steps=1000)
    return opt, opt.record(loss_of)


NUMPYS, PYTHONS = np.random.default_rng(0), random.Random(0)
TORCHS = torch.Generator().manual_seed(0)

# Warnings are errors here.
SAID = (RuntimeError, TypeError, ValueError, UserWarning)


def step(opt, loss):
    loss.backward()
    opt.step()
    opt.zero_grad()


class Counting(nn.Module):
    """Knows how often it was called by an attribute, which no arm has to itself."""

    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(6, 1), 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x) * (1 + 0.001 * self.calls)


class Recurrent(nn.Module):
    """Carries its state from one call to the next as an attribute."""

    def __init__(self):
        super().__init__()
        self.cell, self.last, self.hidden = (
            nn.RNNCell(6, 8, nonlinearity="relu"),
            nn.Linear(8, 1),
            None,
        )

    def forward(self, x):
        self.hidden = self.cell(x, None if self.hidden is None else self.hidden.detach())
        return self.last(self.hidden)


def numpy_noise(model, x):
    return model(x + 0.003 * torch.tensor(NUMPYS.normal(size=x.shape), dtype=torch.float32))


def python_noise(model, x):
    return model(x + 0.1 * PYTHONS.random())


def noise_of_its_own(model, x):
    return model(x + 0.1 * torch.randn(x.shape, generator=TORCHS))


def in_place(model, x):
    return model(x.mul_(1.002))


NOT_REPEATED = {
    "a counter": (Counting, lambda model, x: model(x)),
    "a state": (Recurrent, lambda model, x: model(x)),
    "NumPy's random numbers": (lambda: nn.Linear(6, 1), numpy_noise),
    "Python's random numbers": (lambda: nn.Linear(6, 1), python_noise),
    "a generator of its own": (lambda: nn.Linear(6, 1), noise_of_its_own),
    "inputs changed in place": (lambda: nn.Linear(6, 1), in_place),
}


@pytest.mark.parametrize("name", NOT_REPEATED)
def test_a_loss_that_is_another_the_second_time(name):
    make, forward = NOT_REPEATED[name]
    model = make()
    opt, compute_loss = raced(model, lambda x, y: F.mse_loss(forward(model, x), y))
    compute_loss(*inputs(0)).backward()
    with pytest.warns(UserWarning, match="record"):
        opt.step()


def test_another_optimizer_that_steps_first():
    body, head = nn.Linear(6, 8), nn.Linear(8, 1)
    model = nn.Sequential(body, nn.Tanh(), head)
    other = torch.optim.SGD(head.parameters(), lr=3e-4)
    opt, compute_loss = raced(model, lambda x, y: F.mse_loss(model(x), y), body.parameters())
    compute_loss(*inputs(0)).backward()
    other.step()
    with pytest.warns(UserWarning, match="record"):
        opt.step()


def test_clipping_in_the_loop_that_does_not_bind():
    model = nn.Linear(6, 1)
    opt, compute_loss = raced(model, lambda x, y: F.mse_loss(model(x), y))
    compute_loss(*inputs(0)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1e6)
    with pytest.warns(UserWarning, match="before_step"):
        opt.step()


def test_a_filter_whose_state_no_arm_has_to_itself():
    model = nn.Linear(6, 1)
    opt, compute_loss = raced(model, lambda x, y: F.mse_loss(model(x), y))
    slow = {}

    def filtered():
        for p in model.parameters():
            slow[p] = 0.9 * slow.get(p, 0) + 0.1 * p.grad
            p.grad.add_(slow[p], alpha=2.0)

    opt.before_step(filtered)
    compute_loss(*inputs(0)).backward()
    with pytest.warns(UserWarning, match="before_step"):
        opt.step()


@pytest.mark.parametrize("hidden", [False, True], ids=["in place", "through data"])
def test_weights_that_the_loop_projects(hidden):
    model = nn.Linear(6, 1)
    opt, compute_loss = raced(model, lambda x, y: F.mse_loss(model(x), y))

    def train():
        for number in range(3):
            step(opt, compute_loss(*inputs(number)))
            for p in model.parameters():
                (p.data if hidden else p.detach()).clamp_(-0.1, 0.1)

    with pytest.raises(SAID, match="after_step"):
        train()


def reset_statistics(model):
    model[1].running_mean.zero_()


def move_a_frozen_layer(model):
    with torch.no_grad():
        model[3].weight.lerp_(model[0].weight, 0.1)


@pytest.mark.parametrize("write", [reset_statistics, move_a_frozen_layer])
def test_what_the_loop_writes_beside_the_weights(write):
    model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 1), nn.Linear(6, 6))
    model[3].requires_grad_(False)
    parameters = [p for p in model.parameters() if p.requires_grad]
    loss_of = lambda x, y: F.mse_loss(model[:3](model[3](x)), y)
    opt, compute_loss = raced(model, loss_of, parameters)

    def train():
        for number in range(3):
            step(opt, compute_loss(*inputs(number)))
            write(model)

    with pytest.raises(SAID, match="after_step"):
        train()


def outside_of_the_model():
    """As in a centre loss: parameters that another optimizer trains, in no module."""
    net, centres = nn.Linear(6, 2), nn.Parameter(torch.randn(3, 2))
    loss_of = lambda x, y: torch.cdist(net(x), centres).min(1).values.mean() + y.mean() * 0
    return net, [centres], loss_of


def of_another_model():
    body, head = nn.Linear(6, 8), nn.Linear(8, 1)
    return body, list(head.parameters()), lambda x, y: F.mse_loss(head(body(x).tanh()), y)


@pytest.mark.parametrize("make", [outside_of_the_model, of_another_model])
def test_gradients_of_others_are_as_backward_left_them(make):
    model, others, loss_of = make()
    other = torch.optim.SGD(others, lr=0.01)
    opt, compute_loss = raced(model, loss_of)
    for number in range(6):
        other.zero_grad()
        compute_loss(*inputs(number)).backward()
        before = [p.grad.clone() for p in others]
        opt.step()
        assert all(map(torch.equal, [p.grad for p in others], before))
        other.step()
        opt.zero_grad()
    assert opt.is_racing


def test_an_error_that_the_loop_catches_costs_no_arm_a_step():
    """Whichever arm it happens to, nobody has made a step on that minibatch."""

    class ShortageError(RuntimeError):
        pass

    def train(failing):
        torch.manual_seed(0)
        model, calls = nn.Linear(6, 1), count(1)

        def loss_of(x, y):
            if next(calls) in failing:
                raise ShortageError
            return F.mse_loss(model(x), y)

        base = torch.optim.AdamW(model.parameters())
        opt = SelfTuner(base, model, neighborhood=grid(lr=[1e-3, 4e-3, 1.6e-2]), warmup=0)
        compute_loss = opt.record(loss_of)
        number = 0
        while opt.is_racing:
            try:
                compute_loss(*inputs(number)).backward()
                opt.step()
                number += 1
            except ShortageError:
                pass
            opt.zero_grad()
        return opt.races, list(model.parameters())

    expected = train(failing=())
    # Three calls a minibatch: the loop's own of the third, the second arm's, the third one's.
    for failing in ({7}, {8}, {9}, {8, 15}):
        races, weights = train(failing)
        assert races[0].losses == expected[0][0].losses
        assert all(map(torch.equal, weights, expected[1]))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_a_model_can_be_saved_scripted_and_exported_in_a_race():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    opt, compute_loss = raced(model, lambda x, y: F.mse_loss(model(x), y))
    for number in range(3):
        file = io.BytesIO()
        torch.save(model, file)
        assert b"annealtune" not in file.getvalue()
        torch.export.export(model, inputs(0)[:1])
        torch.jit.script(model)
        step(opt, compute_loss(*inputs(number)))
    assert opt.is_racing


def test_gradients_in_buckets_of_ddp_belong_to_their_optimizer():
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    try:
        body, head = nn.Linear(6, 8), nn.Linear(8, 1)
        model = nn.parallel.DistributedDataParallel(
            nn.Sequential(body, nn.Tanh(), head), gradient_as_bucket_view=True
        )
        opt, compute_loss = raced(model, lambda x, y: F.mse_loss(model(x), y), body.parameters())
        for number in range(5):
            compute_loss(*inputs(number)).backward()
            before = head.weight.grad.clone()
            opt.step()
            assert torch.equal(head.weight.grad, before)
            model.zero_grad()
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("kind", [SelfTuner, EmbeddedTuner])
def test_a_function_that_does_not_contain_the_forward(kind):
    """As it is when somebody records the criterion alone."""
    model = nn.Linear(6, 1)
    opt = kind(torch.optim.AdamW(model.parameters()), model, total_steps=300)
    criterion = opt.record(F.mse_loss)
    x, y = inputs(0)
    with pytest.raises(SAID, match="record"):
        step(opt, criterion(model(x), y))


def test_the_state_of_rejected_weights_is_said():
    model = Recurrent()
    base = torch.optim.SGD(model.parameters(), lr=1.0)
    opt = EmbeddedTuner(base, model, neighborhood=grid(lr=[1e3]), temperature=0.0)

    def train():
        for number in range(3):
            x, y = inputs(number)
            opt.step(lambda: F.mse_loss(model(x), y))  # noqa: B023

    with pytest.warns(UserWarning, match="buffer"):
        train()
