"""What is easily not noticed: it must be exact, or said."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import EmbeddedTuner, SelfTuner


def begun(run, model, loss_of):
    run.tuned(torch.optim.AdamW(model.parameters(), lr=run.rate), model)
    return run.record(loss_of)


def stepped(run, loss):
    loss.backward()
    run.step(loss)
    run.opt.zero_grad()


class Filter(nn.Module):
    """Keeps running means of gradients in a plain list."""

    def __init__(self, model):
        super().__init__()
        self.weights = list(model.parameters())
        self.slow = [torch.zeros_like(p) for p in self.weights]

    def forward(self):
        for p, slow in zip(self.weights, self.slow, strict=True):
            p.grad.add_(slow.mul_(0.9).add_(p.grad, alpha=0.1), alpha=2.0)


def late(model):
    """A filter that begins to remember at its fourth call."""
    calls, slow = [], {}

    def filtered():
        calls.append(1)
        for p in model.parameters() if len(calls) > 3 else ():
            slow[p] = 0.9 * slow.get(p, 0) + 0.1 * p.grad
            p.grad.add_(slow[p], alpha=2.0)

    return filtered


@pytest.mark.parametrize("make", [Filter, late])
def test_a_filter_of_gradients(make, assert_exact):
    def loop(run):
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        compute_loss = begun(run, model, lambda x, y: F.mse_loss(model(x), y))
        run.before_step(make(model))
        for x, y in run.batches():
            stepped(run, compute_loss(x, y))

    assert_exact(loop)


@pytest.mark.parametrize("kind", [SelfTuner, EmbeddedTuner])
@pytest.mark.parametrize("is_captured", [False, True], ids=["in a dict", "captured"])
def test_a_forward_outside_that_is_not_an_argument(kind, is_captured):
    model, x = nn.Linear(6, 1), torch.randn(16, 6)
    opt = kind(torch.optim.AdamW(model.parameters()), model, total_steps=300)
    out = model(x)
    recorded = opt.record(lambda batch: F.mse_loss(out if is_captured else batch["out"], x[:, :1]))

    def train():
        recorded({"out": out}).backward()
        opt.step()

    with pytest.raises((RuntimeError, ValueError, TypeError, UserWarning), match="record"):
        train()


def test_clipping_in_the_loop_after_unscaling():
    """The clipping does not bind, so that the gradients are the same."""
    model, x, scaler = nn.Linear(6, 1), torch.randn(16, 6), torch.amp.GradScaler("cpu")
    opt = SelfTuner(torch.optim.AdamW(model.parameters()), model, total_steps=300)
    compute_loss = opt.record(lambda: F.mse_loss(model(x), x[:, :1]), scaler=scaler)
    scaler.scale(compute_loss()).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(model.parameters(), 1e6)
    with pytest.raises(UserWarning, match="before_step"):
        scaler.step(opt)
