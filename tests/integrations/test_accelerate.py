"""Accelerate's loop, with a recorded loss, makes the decisions of a plain one."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator


def train(task, kind, counted, *, accumulate=1, clip=None, precision="no"):
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=accumulate, mixed_precision=precision
    )
    net = task.net()
    count = counted(net)
    tuner = task.tuner(kind, net)
    model, optimizer, loader = accelerator.prepare(net, tuner, task.loader(accumulate))
    compute_loss = tuner.record(lambda x, y: task.loss(model, x, y))
    if clip is not None and kind != "embedded":
        tuner.after_replay(lambda: torch.nn.utils.clip_grad_norm_(net.parameters(), clip))
    torch.manual_seed(6)
    losses = []
    for _ in range(task.epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = compute_loss(x, y)
                losses.append(loss.item())
                accelerator.backward(loss)
                if accelerator.sync_gradients and clip is not None:
                    accelerator.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
        if kind == "embedded":
            tuner.cool()
    return task.outcome(net, tuner, count, losses)


@pytest.mark.parametrize(
    "accumulate", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4))]
)
def test_the_run_of_a_plain_loop(task, kind, counted, accumulate):
    found = train(task, kind, counted, accumulate=accumulate)
    found.assert_equals(task.plain(kind, accumulate))


def test_clipping(task, brief_kind, counted):
    train(task, brief_kind, counted, clip=0.1).assert_equals(task.plain(brief_kind, clip=0.1))


def test_bfloat16(task, brief_kind, counted):
    """Accelerate's autocast is around the model alone, here as in the plain loop."""
    found = train(task, brief_kind, counted, precision="bf16")
    found.assert_equals(task.plain(brief_kind, autocast=torch.bfloat16))


# --- save_state and load_state ---


def resumable(task, kind, path, *, start=0, saves=(), averaged=False, accumulate=1):
    """Train 60 steps, or those after a saved one; return losses, weights and the tuner."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    net = task.net()
    tuner = task.tuner(kind, net)
    loader = task.loader(accumulate, shuffle=True)  # of its own generator: the same every time
    model, optimizer, loader = accelerator.prepare(net, tuner, loader)
    compute_loss = tuner.record(lambda x, y: task.loss(model, x, y))
    torch.manual_seed(6 + start)  # a new process stands elsewhere
    if start:
        accelerator.load_state(str(path / f"{kind}-{start}"))
        loader = accelerator.skip_first_batches(loader, start * accumulate)
    losses, step = [], start
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = compute_loss(x, y)
            losses.append(loss.item())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        step += accelerator.sync_gradients
        if accelerator.sync_gradients and step in saves:
            if averaged:
                optimizer.eval()
            accelerator.save_state(str(path / f"{kind}-{step}"))
            optimizer.train()
    return losses, {name: value.clone() for name, value in net.state_dict().items()}, tuner


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("accumulate", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_saved_state_continues_exactly(task, kind, tmp_path, accumulate, averaged):
    """In the middle of a race and after it, with dropout; also with the average in the model."""
    options = {"accumulate": accumulate, "averaged": averaged}
    whole, weights, tuner = resumable(task, kind, tmp_path, saves=(5, 40), **options)
    if kind != "embedded":
        assert 5 < tuner.races[0].step + tuner.races[0].minibatches < 40
    for start in (5, 40):
        losses, found, again = resumable(task, kind, tmp_path, start=start, **options)
        assert losses == whole[start * accumulate :]
        assert str(again.summary()) == str(tuner.summary())
        assert getattr(again, "races", None) == getattr(tuner, "races", None)
        for name, value in weights.items():
            assert torch.equal(found[name], value), name
