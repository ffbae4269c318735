"""Loops of every kind around a small net: arms and rejections are exact."""

import copy
import math
import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F


def net(*inner):
    return nn.Sequential(nn.Linear(6, 8), *inner, nn.Tanh(), nn.Linear(8, 1))


def begun(run, model=None, base=torch.optim.AdamW, loss_of=None, scaler=None, **options):
    """Build what most loops have: a model, its optimizer and the function of the loss."""
    model = net() if model is None else model
    given = [p for p in model.parameters() if p.requires_grad]
    opt = run.tuned(base(given, lr=run.rate, **options), model)
    compute_loss = run.record(loss_of or (lambda x, y: F.mse_loss(model(x), y)), scaler=scaler)
    return model, opt, compute_loss


def stepped(run, loss):
    """The end of most loops."""
    loss.backward()
    run.step(loss)
    run.opt.zero_grad()


def trained(run, compute_loss):
    """The plain loop."""
    for x, y in run.batches():
        stepped(run, compute_loss(x, y))


def accumulates(run):
    _, opt, compute_loss = begun(run, net(nn.Dropout(0.3), nn.BatchNorm1d(8)))
    for x, y in run.batches():
        total = 0.0
        for part in zip(x.chunk(2), y.chunk(2), strict=True):
            loss = compute_loss(*part) / 2
            loss.backward()
            total = total + loss
        run.step(total)
        opt.zero_grad()


def has_two_groups(run):
    """One of them slower, the other with a weight of the loss, which is in no module."""
    model, weight = net(), nn.Parameter(torch.zeros(()))
    body = {"params": model[0].parameters(), "lr": run.rate / 4, "weight_decay": 0.1}
    base = torch.optim.AdamW([body, {"params": [*model[2].parameters(), weight]}], lr=run.rate)
    run.tuned(base, model)
    trained(run, run.record(lambda x, y: F.mse_loss(model(x), y) * (-weight).exp() + weight))


def penalizes(run):
    """Differentiates inside the function, as a gradient penalty does."""
    model = net()

    def loss_of(x, y):
        x = x.clone().requires_grad_()
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return F.mse_loss(out, y) + slope.square().mean()

    trained(run, begun(run, model, loss_of=loss_of)[2])


def draws(run):
    """Draws numbers of Python and NumPy, as mixup does."""
    model = net()

    def loss_of(x, y):
        share = np.random.beta(0.2, 0.2)  # noqa: NPY002 - as many do
        mixed = share * x + (1 - share) * x.flip(0)
        return F.mse_loss(model(mixed), y if random.random() < 0.5 else y.flip(0))

    trained(run, begun(run, model, loss_of=loss_of)[2])


def closes(run):
    model, opt, _ = begun(run, net(nn.Dropout(0.3)))
    for x, y in run.batches():

        def closure(x=x, y=y):
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            return loss

        run.note(opt.step(closure))


def scales(run):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10)
    _, opt, compute_loss = begun(run, scaler=scaler)
    for x, y in run.batches():
        loss = compute_loss(x, y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        run.note(loss)
        scaler.update()
        opt.zero_grad()


def unfreezes(run):
    model, _, compute_loss = begun(run, net(nn.BatchNorm1d(8)))
    model[0].requires_grad_(False)
    for number, (x, y) in enumerate(run.batches()):
        if number == 3:
            model[0].requires_grad_(True)
            model[1].eval()
        with torch.autocast("cpu", torch.bfloat16):
            loss = compute_loss(x, y)
        stepped(run, loss)


def looks_and_copies(run):
    model, opt, compute_loss = begun(run, net(nn.BatchNorm1d(8), nn.Dropout(0.3)))
    for x, y in run.batches():
        stepped(run, compute_loss(x, y))
        model.eval()
        with torch.no_grad():
            compute_loss(x + 1, y)
        model.train()
        if len(run.losses) % 4 == 2:
            if hasattr(opt, "validate"):
                opt.validate(lambda x=x, y=y: F.mse_loss(model(x), y))
            copy.deepcopy((model, opt))
            opt.load_state_dict(copy.deepcopy(opt.state_dict()))


def skips(run, *, when, set_to_none=True):
    """Skips steps with a huge loss; the model resets the gradients, at one of three places."""
    model, _, compute_loss = begun(run)
    for number, (x, y) in enumerate(run.batches()):
        if when == "before":
            model.zero_grad(set_to_none)
        loss = compute_loss(x, y * (100 if number % 5 == 3 else 1))
        if when == "between":
            model.zero_grad(set_to_none)
        loss.backward()
        if loss < 1000:
            run.step(loss)
        if when == "after":
            model.zero_grad(set_to_none)


def skips_nan(run):
    """Skips minibatches whose loss is not finite, before their backward."""
    _, _, compute_loss = begun(run, net(nn.Dropout(0.3)))
    for number, (x, y) in enumerate(run.batches()):
        loss = compute_loss(x, y * (math.nan if number % 5 == 3 else 1))
        if loss.isfinite():
            stepped(run, loss)


def schedules(run):
    """Writes momentum and weight decay by hand, in every step."""
    _, opt, compute_loss = begun(run, base=torch.optim.SGD, momentum=0.5)
    for number, (x, y) in enumerate(run.batches()):
        for group in opt.param_groups:
            group["momentum"] = 0.5 + 0.4 * min(1, number / 10)
            group["weight_decay"] = 0.01 * number
        stepped(run, compute_loss(x, y))


class Recurrent(nn.Module):
    """Carries its state in a buffer."""

    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.GRUCell(6, 8), nn.Linear(8, 1)
        self.register_buffer("hidden", torch.zeros(16, 8))

    def forward(self, x, first):
        hidden = self.cell(x, torch.zeros_like(self.hidden) if first else self.hidden)
        self.hidden = hidden.detach()
        return self.last(hidden)


class Lstm(Recurrent):
    """Carries its state in an attribute, as a tuple."""

    def __init__(self):
        super().__init__()
        del self.hidden
        self.cell, self.hidden = nn.LSTMCell(6, 8), None

    def forward(self, x, first):
        hidden, cell = self.cell(x, None if first else self.hidden)
        self.hidden = hidden.detach(), cell.detach()
        return self.last(hidden)


def zeroed(tensor):
    return tensor.zero_()


def truncates(run, *, by_loop, model=Recurrent, reset=lambda _: torch.zeros(16, 8)):
    """Trains on parts of sequences; at the first one the forward or the loop resets the state."""
    model = model()
    loss_of = lambda x, y, first: F.mse_loss(model(x, first), y)
    _, _, compute_loss = begun(run, model, loss_of=loss_of)
    for number, (x, y) in enumerate(run.batches()):
        first = number % 4 == 0
        if first and by_loop:
            model.hidden = reset(model.hidden)
        stepped(run, compute_loss(x, y, first and not by_loop))


def filters(run):
    """Clips gradients, then adds noise and their running mean."""
    model, _, compute_loss = begun(run, net(nn.Dropout(0.3)))
    slow = {}

    def filtered():
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for p in model.parameters():
            slow[p] = 0.9 * slow.get(p, (0, 0))[0] + 0.1 * p.grad, p.grad
            p.grad.add_(slow[p][0] + 0.01 * torch.randn_like(p), alpha=2.0)

    run.before_step(model.zero_grad).remove()
    run.before_step(filtered)
    trained(run, compute_loss)


class SlowFilter(nn.Module):
    """Adds a running mean to the gradients, in a list that it has from the start or makes later."""

    def __init__(self, model, *, late):
        super().__init__()
        self.weights, self.late, self.calls = list(model.parameters()), late, 0
        if not late:
            self.slow = [torch.zeros_like(p) for p in self.weights]

    def forward(self):
        self.calls += 1
        if self.late and self.calls == 4:
            self.slow = [torch.zeros_like(p) for p in self.weights]
        for p, slow in zip(self.weights, getattr(self, "slow", ()), strict=False):
            p.grad.add_(slow.mul_(0.9).add_(p.grad, alpha=0.1), alpha=2.0)


def filters_by_an_object(run, *, late):
    model, _, compute_loss = begun(run)
    run.before_step(SlowFilter(model, late=late))
    trained(run, compute_loss)


def projects(run):
    model, _, compute_loss = begun(run)
    run.after_step(lambda: [p.data.clamp_(-0.3, 0.3) for p in model.parameters()] and None)
    trained(run, compute_loss)


def teaches(run):
    """Moves a teacher, or a target network, after every step."""
    model = nn.ModuleDict({"student": net(), "teacher": net().requires_grad_(False)})
    student, teacher = model.values()

    @torch.no_grad()
    def follow():
        for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.lerp_(fast, 0.1)

    loss_of = lambda x, y: F.mse_loss(student(x) + teacher(x), y)
    _, _, compute_loss = begun(run, model, loss_of=loss_of)
    run.after_step(follow)
    trained(run, compute_loss)


WAYS = {
    "in place": lambda slow, fast: slow.lerp_(fast, 0.1),
    "through data": lambda slow, fast: slow.data.lerp_(fast.data, 0.1),
    "by new data": lambda slow, fast: setattr(slow, "data", slow.data * 0.9 + fast.data * 0.1),
}


@torch.no_grad()
def follow(slow, fast, way):
    for one, other in zip(slow.parameters(), fast.parameters(), strict=True):
        WAYS[way](one, other)


class Momentum(nn.Module):
    """Has a copy of itself, which follows it as soon as the loop says so."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.way = net(), net().requires_grad_(False), None

    def forward(self, x):
        if self.way:
            follow(self.key, self.query, self.way)
        return self.query(x) + self.key(x)


def begins_late(run, *, way, by_hook):
    """Has an EMA that stands still at first; the forward moves it, or a function after the step."""
    model, _, compute_loss = begun(run, Momentum())
    late = None
    if by_hook:
        run.after_step(lambda: late and follow(model.key, model.query, late))
    for number, (x, y) in enumerate(run.batches()):
        if number == 2:
            late = way
            model.way = None if by_hook else way
        stepped(run, compute_loss(x, y))


class Remembering(nn.Module):
    """Keeps its input, and scales by a tensor that the loop writes."""

    def __init__(self):
        super().__init__()
        self.inner, self.last, self.scale = net(), None, torch.ones(())

    def forward(self, x):
        self.last = x
        return self.inner(x) * self.scale


def writes_in_place(run):
    """Gives every minibatch in the same tensor, and writes into an attribute of the model."""
    model, _, compute_loss = begun(run, Remembering())
    given = torch.empty(16, 6)
    for number, (x, y) in enumerate(run.batches()):
        given.copy_(x)
        model.scale.fill_(1 + number / 100)
        stepped(run, compute_loss(given, y))


LOOPS = {
    **{f"EMA late {way}": partial(begins_late, way=way, by_hook=False) for way in WAYS},
    **{f"EMA late by a hook {way}": partial(begins_late, way=way, by_hook=True) for way in WAYS},
    "accumulation": accumulates,
    "two groups": has_two_groups,
    "gradient penalty": penalizes,
    "numbers of Python and NumPy": draws,
    "closure": closes,
    "GradScaler": scales,
    "unfreezing under autocast": unfreezes,
    "looks and copies": looks_and_copies,
    "skipped, reset before": partial(skips, when="before"),
    "skipped, reset between": partial(skips, when="between"),
    "skipped, reset after": partial(skips, when="after"),
    "skipped, reset to zero": partial(skips, when="before", set_to_none=False),
    "NaN skipped": skips_nan,
    "options by hand": schedules,
    "sequences, reset by an argument": partial(truncates, by_loop=False),
    "sequences, reset by the loop": partial(truncates, by_loop=True),
    "sequences of an LSTM, reset by an argument": partial(truncates, by_loop=False, model=Lstm),
    "sequences of an LSTM, reset to none": partial(
        truncates, by_loop=True, model=Lstm, reset=lambda _: None
    ),
    "sequences of an LSTM, reset to zeros": partial(
        truncates, by_loop=True, model=Lstm, reset=lambda _: (torch.zeros(16, 8),) * 2
    ),
    "sequences of an LSTM, reset in place": partial(
        truncates, by_loop=True, model=Lstm, reset=lambda state: state and (*map(zeroed, state),)
    ),
    "projection": projects,
    "teacher": teaches,
    "written in place": writes_in_place,
}


@pytest.mark.parametrize("name", LOOPS)
def test_every_arm_is_the_base_at_its_rate(name, assert_exact):
    assert_exact(LOOPS[name])


@pytest.mark.parametrize("late", [None, False, True])
def test_changed_gradients_in_every_arm(late, assert_exact):
    assert_exact(filters if late is None else partial(filters_by_an_object, late=late))


@pytest.mark.parametrize("name", LOOPS)
def test_a_rejection_is_a_forward_and_backward(name, assert_undone):
    assert_undone(LOOPS[name])
