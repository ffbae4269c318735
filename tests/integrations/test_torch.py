"""What torch offers around a training step: compile, checkpointing, functional calls, AMP."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch._inductor.config
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def train(task, kind, counted, compute, *, net=None, scaler=None, autocast=None):
    """Train with ``compute(net, x, y)`` as the loss."""
    net = net or task.net()
    count = counted(net)
    tuner = task.tuner(kind, net)

    def in_precision(x, y):
        with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
            return compute(net, x, y)

    compute_loss = tuner.record(in_precision, scaler=scaler)
    torch.manual_seed(6)
    losses = []
    for _ in range(task.epochs):
        for x, y in task.loader():
            loss = compute_loss(x, y)
            losses.append(loss.item())
            (loss if scaler is None else scaler.scale(loss)).backward()
            if scaler is None:
                tuner.step()
            else:
                scaler.step(tuner)
                scaler.update()
            tuner.zero_grad()
        if kind == "embedded":
            tuner.cool()
    return task.outcome(net, tuner, count, losses)


def train_compiled(task, kind, backend):
    """Train with a compiled model; after the first step dynamo refuses to compile again."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    net = task.net()
    compiled = torch.compile(net, backend=backend, fullgraph=True)
    tuner = task.tuner(kind, compiled)
    compute_loss = tuner.record(lambda x, y: task.loss(compiled, x, y))
    torch.manual_seed(6)
    refusing = False
    with contextlib.ExitStack() as later:
        for _ in range(task.epochs):
            for x, y in task.loader():
                compute_loss(x, y).backward()
                tuner.step()
                tuner.zero_grad()
                if not refusing:
                    later.enter_context(torch._dynamo.config.patch(error_on_recompile=True))
                    refusing = True
            if kind == "embedded":
                tuner.cool()
    counters = {name: dict(found) for name, found in torch._dynamo.utils.counters.items() if found}
    torch._dynamo.reset()
    return net, tuner, counters


@pytest.mark.parametrize(("kind", "graphs"), [("self-tuned", 1), ("embedded", 2)])
def test_a_compiled_model_is_compiled_once(task, kind, graphs):
    """Not once an arm, a step or a rate; an accept test needs a graph without gradients too."""
    backend = CompileCounter()
    net, tuner, counters = train_compiled(task, kind, backend)
    plain = task.plain(kind)
    assert backend.frame_count == counters["stats"]["unique_graphs"] == graphs
    assert "graph_break" not in counters
    if kind == "embedded":
        assert tuner.summary() == plain.decisions[0]
    else:
        assert [str(info.to_dict()) for info in tuner.races] == plain.decisions[0]
    for name, value in plain.weights.items():
        assert torch.equal(net.state_dict()[name], value), name


@pytest.mark.parametrize("reentrant", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_activations_may_be_computed_again(task, brief_kind, counted, reentrant):
    """Without BatchNorm, whose statistics a second forward would count twice, as torch says."""

    def compute(net, x, y):
        x = x.requires_grad_() if reentrant else x
        inside = checkpoint(net[:3], x, use_reentrant=reentrant)
        return functional.cross_entropy(net[3:](inside), y)

    def make():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))

    found = train(task, brief_kind, counted, compute, net=make())
    plain = train(task, brief_kind, counted, lambda net, x, y: net_loss(net, x, y), net=make())
    found.forwards, found.backwards = plain.forwards, plain.backwards
    found.assert_equals(plain)


def net_loss(net, x, y):
    return functional.cross_entropy(net[1:](net[:1](x)), y)


def test_bfloat16_through_a_scaler(task, brief_kind, counted):
    """A scale of two to some power changes no bit of a gradient."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**6, growth_interval=10_000)
    found = train(task, brief_kind, counted, task.loss, scaler=scaler, autocast=torch.bfloat16)
    found.assert_equals(task.plain(brief_kind, autocast=torch.bfloat16))
    assert scaler.get_scale() == 2.0**6  # nothing overflowed
