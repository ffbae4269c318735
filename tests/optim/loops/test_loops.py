"""Loops of every kind around one small net: arms and rejections are exact."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def net(*inner):
    return nn.Sequential(nn.Linear(6, 8), *inner, nn.Tanh(), nn.Linear(8, 1))


def begun(run, model=None, base=torch.optim.AdamW, scaler=None, **options):
    """Build what most loops have: a model, its optimizer and the function of the loss."""
    model = net() if model is None else model
    opt = run.tuned(base(model.parameters(), lr=run.rate, **options), model)
    return model, opt, run.record(lambda x, y: F.mse_loss(model(x), y), scaler=scaler)


def stepped(run, loss):
    """The end of most loops."""
    loss.backward()
    run.step(loss)
    run.opt.zero_grad()


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
    model = net()
    groups = [
        {"params": model[0].parameters(), "lr": run.rate / 4, "weight_decay": 0.1},
        {"params": model[2].parameters()},
    ]
    run.tuned(torch.optim.AdamW(groups, lr=run.rate), model)
    compute_loss = run.record(lambda x, y: F.mse_loss(model(x), y))
    for x, y in run.batches():
        stepped(run, compute_loss(x, y))


def closes(run):
    model = net(nn.Dropout(0.3))
    opt = run.tuned(torch.optim.AdamW(model.parameters(), lr=run.rate), model)
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


def casts(run):
    _, _, compute_loss = begun(run)
    for x, y in run.batches():
        with torch.autocast("cpu", torch.bfloat16):
            loss = compute_loss(x, y)
        stepped(run, loss)


def unfreezes(run):
    model, _, compute_loss = begun(run, net(nn.BatchNorm1d(8)))
    model[0].requires_grad_(False)
    for number, (x, y) in enumerate(run.batches()):
        if number == 3:
            model[0].requires_grad_(True)
            model[1].eval()
        stepped(run, compute_loss(x, y))


def evaluates(run):
    model, _, compute_loss = begun(run, net(nn.BatchNorm1d(8), nn.Dropout(0.3)))
    for x, y in run.batches():
        stepped(run, compute_loss(x, y))
        model.eval()
        with torch.no_grad():
            compute_loss(x + 1, y)
        model.train()


def copies(run):
    model, opt, compute_loss = begun(run)
    for x, y in run.batches():
        stepped(run, compute_loss(x, y))
        if len(run.losses) % 4 == 2:
            copy.deepcopy(model)
            copy.deepcopy(opt.state_dict())
            copy.deepcopy(opt)


def reloads(run):
    model, opt, compute_loss = begun(run)
    for x, y in run.batches():
        stepped(run, compute_loss(x, y))
        if len(run.losses) % 4 == 2:
            kept = copy.deepcopy((model.state_dict(), opt.state_dict()))
            opt.load_state_dict(kept[1])


def skips(run, *, when, set_to_none=True):
    """Skips steps with a huge loss; the gradient is reset by the model, at one of three places."""
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


def clips(run):
    model, _, compute_loss = begun(run)
    run.before_step(lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    for x, y in run.batches():
        stepped(run, compute_loss(x, y))


def adds_noise(run):
    model, _, compute_loss = begun(run, net(nn.Dropout(0.3)))

    def noise():
        for p in model.parameters():
            p.grad.add_(torch.randn_like(p), alpha=0.01)

    run.before_step(noise)
    for x, y in run.batches():
        stepped(run, compute_loss(x, y))


def filters(run):
    """Adds a running mean to the gradient, as GrokFast does, kept in buffers of the model."""
    model = net()
    for number, p in enumerate(model.parameters()):
        model.register_buffer(f"slow{number}", torch.zeros_like(p))
    _, _, compute_loss = begun(run, model)

    def filtered():
        for p, slow in zip(model.parameters(), model.buffers(), strict=True):
            slow.mul_(0.9).add_(p.grad, alpha=0.1)
            p.grad.add_(slow, alpha=2.0)

    run.before_step(filtered)
    for x, y in run.batches():
        stepped(run, compute_loss(x, y))


def projects(run):
    model, _, compute_loss = begun(run)

    def project():
        for p in model.parameters():
            p.data.clamp_(-0.3, 0.3)

    run.after_step(project)
    for x, y in run.batches():
        stepped(run, compute_loss(x, y))


class WithTeacher(nn.Module):
    """A net and a slow copy of it, which is no part of the forward's gradient."""

    def __init__(self):
        super().__init__()
        self.student = net()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, x):
        return self.student(x) + 0.5 * self.teacher(x).detach()

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            slow.lerp_(fast, 0.1)


def teaches(run):
    """Moves a teacher, or a target network, after every step."""
    model = WithTeacher()
    run.tuned(torch.optim.AdamW(model.student.parameters(), lr=run.rate), model)
    compute_loss = run.record(lambda x, y: F.mse_loss(model(x), y))
    run.after_step(model.follow)
    for x, y in run.batches():
        stepped(run, compute_loss(x, y))


class Recurrent(nn.Module):
    """Carries its state in a buffer, which the caller can have reset."""

    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.GRUCell(6, 8), nn.Linear(8, 1)
        self.register_buffer("hidden", torch.zeros(16, 8))

    def forward(self, x, first=False):
        hidden = self.cell(x, torch.zeros_like(self.hidden) if first else self.hidden)
        self.hidden = hidden.detach()
        return self.last(hidden)


def truncates(run):
    """Backpropagates through parts of sequences, each of which begins without a state."""
    model = Recurrent()
    run.tuned(torch.optim.AdamW(model.parameters(), lr=run.rate), model)
    compute_loss = run.record(lambda x, y, first: F.mse_loss(model(x, first), y))
    for number, (x, y) in enumerate(run.batches()):
        stepped(run, compute_loss(x, y, number % 4 == 0))


def schedules(run):
    """Writes momentum and weight decay by hand, in every step."""
    _, opt, compute_loss = begun(run, base=torch.optim.SGD, momentum=0.5)
    for number, (x, y) in enumerate(run.batches()):
        for group in opt.param_groups:
            group["momentum"] = 0.5 + 0.4 * min(1, number / 10)
            group["weight_decay"] = 0.01 * number
        stepped(run, compute_loss(x, y))


LOOPS = {
    "accumulation": accumulates,
    "two groups": has_two_groups,
    "closure": closes,
    "GradScaler": scales,
    "autocast": casts,
    "unfreezing": unfreezes,
    "evaluation": evaluates,
    "copies": copies,
    "loading its own state": reloads,
    "skipped, reset before": lambda run: skips(run, when="before"),
    "skipped, reset between": lambda run: skips(run, when="between"),
    "skipped, reset after": lambda run: skips(run, when="after"),
    "skipped, reset to zero": lambda run: skips(run, when="before", set_to_none=False),
    "NaN skipped": skips_nan,
    "options by hand": schedules,
    "truncated sequences": truncates,
}
HOOKED = {
    "clipping": clips,
    "noise in gradients": adds_noise,
    "filter with a state": filters,
    "projection": projects,
    "teacher": teaches,
}


@pytest.mark.parametrize("name", [*LOOPS, *HOOKED])
def test_every_arm_is_the_base_at_its_rate(name, assert_exact):
    assert_exact({**LOOPS, **HOOKED}[name])


@pytest.mark.parametrize("name", LOOPS)
def test_a_rejection_is_a_forward_and_backward(name, assert_undone):
    assert_undone(LOOPS[name])
