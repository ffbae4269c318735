"""What a loop does that cannot reach every arm is said, and others are left alone."""

import copy
import io
import random
from itertools import count

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.nn import functional as F

from annealtune import EmbeddedTuner, SelfTuner, grid

# Warnings are errors here.
SAID = (RuntimeError, TypeError, ValueError, UserWarning)
NUMPYS, PYTHONS = np.random.default_rng(0), random.Random(0)
TORCHS = torch.Generator().manual_seed(0)


def inputs(number=0):
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(number))
    return x, x.sum(1, keepdim=True)


def raced(model, loss_of=None, parameters=None):
    """Return a tuner whose race begins with the first step, and the function of the loss."""
    parameters = model.parameters() if parameters is None else parameters
    opt = SelfTuner(torch.optim.AdamW(parameters), model, total_steps=1000)
    return opt, opt.record(loss_of or (lambda x, y: F.mse_loss(model(x), y)))


class Counting(nn.Module):
    """Counts its calls, those of all arms."""

    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(6, 1), 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x) * (1 + 0.001 * self.calls)


NOT_REPEATED = {
    "a counter": (Counting, lambda x: x),
    "NumPy's numbers": (
        None,
        lambda x: x + 0.003 * torch.from_numpy(NUMPYS.normal(size=6)).float(),
    ),
    "Python's numbers": (None, lambda x: x + 0.003 * PYTHONS.random()),
    "numbers of its own": (None, lambda x: x + 0.003 * torch.randn(6, generator=TORCHS)),
    "inputs changed in place": (None, lambda x: x.mul_(1.002)),
}


@pytest.mark.parametrize("name", NOT_REPEATED)
def test_a_loss_that_is_another_the_second_time(name):
    make, changed = NOT_REPEATED[name]
    model = make() if make else nn.Linear(6, 1)
    opt, compute_loss = raced(model, lambda x, y: F.mse_loss(model(changed(x)), y))
    compute_loss(*inputs()).backward()
    with pytest.raises(SAID, match="record"):
        opt.step()


OUTSIDE = {
    "as an argument": lambda out, y: (F.mse_loss, (out, y)),
    "in a dict": lambda out, y: (lambda batch: F.mse_loss(batch["out"], y), ({"out": out},)),
    "captured": lambda out, y: (lambda: F.mse_loss(out, y), ()),
}


@pytest.mark.parametrize("kind", [SelfTuner, EmbeddedTuner])
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_function_that_does_not_contain_the_forward(kind, name):
    """As it is when somebody records the criterion alone."""
    model, (x, y) = nn.Linear(6, 1), inputs()
    opt = kind(torch.optim.AdamW(model.parameters()), model, total_steps=300)
    function, given = OUTSIDE[name](model(x), y)
    with pytest.raises(ValueError, match="record"):
        opt.record(function)(*given)


def test_lazy_layers():
    model = nn.Sequential(nn.LazyLinear(1))
    with pytest.raises(ValueError, match=r"SelfTuner.*LazyLinear"):
        raced(model)
    model(inputs()[0])
    raced(model)


def test_another_optimizer_that_steps_first():
    body, head = nn.Linear(6, 8), nn.Linear(8, 1)
    model = nn.Sequential(body, nn.Tanh(), head)
    opt, compute_loss = raced(model, parameters=body.parameters())
    compute_loss(*inputs()).backward()
    torch.optim.SGD(head.parameters(), lr=3e-4).step()
    with pytest.raises(SAID, match="record"):
        opt.step()


@pytest.mark.parametrize("what", ["a term", 1e-3, 1e6])
def test_a_term_or_clipping_in_the_loop(what):
    """Also one that does not bind, so that the gradients are the same."""
    model = nn.Linear(6, 1)
    opt, compute_loss = raced(model)
    loss = compute_loss(*inputs())
    if what == "a term":
        (loss + model.weight.square().sum()).backward()
    else:
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), what)
    with pytest.raises(UserWarning, match="before_step"):
        opt.step()


@pytest.mark.parametrize("is_told", [False, True])
def test_a_scaler_that_is_not_told_or_clipping_after_it(is_told):
    model, scaler = nn.Linear(6, 1), torch.amp.GradScaler("cpu")
    opt = SelfTuner(torch.optim.AdamW(model.parameters()), model, total_steps=300)
    loss_of = lambda x, y: F.mse_loss(model(x), y)
    compute_loss = opt.record(loss_of, scaler=scaler if is_told else None)
    scaler.scale(compute_loss(*inputs())).backward()
    if is_told:
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1e6)  # does not bind
    with pytest.raises(UserWarning, match="before_step" if is_told else "scaler"):
        scaler.step(opt)


WRITES = {
    "weights": lambda model: model[0].weight.detach().clamp_(-0.1, 0.1),
    "weights through data": lambda model: model[0].weight.data.clamp_(-0.1, 0.1),
    "statistics": lambda model: model[1].running_mean.zero_(),
    "frozen weights": lambda model: model[2].weight.detach().lerp_(model[0].weight.detach(), 0.1),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_the_loop_writes_into_the_model_between_steps(name):
    model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 6), nn.Linear(6, 1))
    model[2].requires_grad_(False)
    opt, compute_loss = raced(model, parameters=[*model[:2].parameters(), *model[3].parameters()])

    def train():
        for number in range(3):
            compute_loss(*inputs(number)).backward()
            opt.step()
            opt.zero_grad()
            WRITES[name](model)

    with pytest.raises(SAID, match="after_step"):
        train()


def centre_loss():
    """Trains parameters that are in no module."""
    net, centres = nn.Linear(6, 2), nn.Parameter(torch.randn(3, 2))
    return net, net, [centres], lambda x, _: torch.cdist(net(x), centres).min(1).values.mean()


def two_models():
    body, head = nn.Linear(6, 8), nn.Linear(8, 1)
    return body, body, list(head.parameters()), lambda x, y: F.mse_loss(head(body(x).tanh()), y)


def ddp():
    """Its gradients are views of buckets, which a backward writes into."""
    body, head = nn.Linear(6, 8), nn.Linear(8, 1)
    both = nn.Sequential(body, nn.Tanh(), head)
    model = nn.parallel.DistributedDataParallel(both, gradient_as_bucket_view=True)
    return model, body, list(head.parameters()), lambda x, y: F.mse_loss(model(x), y)


@pytest.fixture
def process_group():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("make", [centre_loss, two_models, ddp])
def test_gradients_of_others_are_as_backward_left_them(make):
    model, own, others, loss_of = make()
    other = torch.optim.SGD(others, lr=0.01)
    opt, compute_loss = raced(model, loss_of, own.parameters())
    for number in range(6):
        other.zero_grad()
        compute_loss(*inputs(number)).backward()
        before = [p.grad.clone() for p in others]
        opt.step()
        assert all(map(torch.equal, [p.grad for p in others], before))
        other.step()
        opt.zero_grad()
    assert opt.extra_steps > 6


class ShortageError(RuntimeError):
    """As if memory had run out."""


def raced_with_failures(failing):
    """Race three rates; some calls of the loss fail, and the loop goes on with the next one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
    calls, number = count(1), 0

    def loss_of(x, y):
        if next(calls) in failing:
            raise ShortageError
        return F.mse_loss(model(x), y)

    base = torch.optim.AdamW(model.parameters())
    opt = SelfTuner(base, model, neighborhood=grid(lr=[1e-3, 4e-3, 1.6e-2]), warmup=0)
    compute_loss = opt.record(loss_of)
    while opt.is_racing:
        try:
            compute_loss(*inputs(number)).backward()
            opt.step()
        except ShortageError:
            for save in (opt.state_dict, lambda: copy.deepcopy(opt)):
                with pytest.raises(RuntimeError, match="step first"):
                    save()
        opt.zero_grad()
        number += 1
    return opt.races[0].losses, [*model.parameters(), *model.buffers()]


def test_a_state_that_the_loop_carries():
    """Truncated backpropagation through time, with the state outside the model."""
    model, x = nn.GRU(6, 4), torch.randn(5, 2, 6)

    def loss_of(x, hidden):
        out, hidden = model(x, hidden)
        return out.square().mean(), hidden

    opt, compute_loss = raced(model, loss_of)

    def train(hidden=None):
        loss, hidden = compute_loss(x, hidden)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return hidden.detach()

    hidden = train()
    train(hidden.clone())  # anything may be made of it: this is not noticed
    with pytest.raises(UserWarning, match="hidden"):
        train(hidden)


def test_an_error_that_the_loop_catches_costs_no_arm_a_step():
    """The third minibatch makes the calls 7 to 9: the loop's own, and those of two other arms.

    The arms that were kept from their step make it later, so that it is as if nothing had happened;
    until then nothing can be saved.
    """
    losses, weights = raced_with_failures(())
    for failing in ({8}, {9}, {5, 13}):
        found = raced_with_failures(failing)
        assert found[0] == losses
        assert all(map(torch.equal, found[1], weights))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_a_model_can_be_saved_scripted_and_exported_in_a_race():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    opt, compute_loss = raced(model)
    for number in range(3):
        file = io.BytesIO()
        torch.save(model, file)
        assert b"annealtune" not in file.getvalue()
        torch.export.export(model, inputs()[:1])
        torch.jit.script(model)
        compute_loss(*inputs(number)).backward()
        opt.step()
        opt.zero_grad()
    assert opt.is_racing
