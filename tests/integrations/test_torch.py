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


def train(task, kind, counted, compute, *, net=None, scaler=None, autocast=None, probe=False):
    """Train with ``compute(net, x, y)`` as the loss; the scaler is told a probe, or nothing."""
    net = net or task.net()
    count = counted(net)
    tuner = task.tuner(kind, net)

    def in_precision(x, y):
        with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
            return compute(net, x, y)

    compute_loss = in_precision if probe else tuner.record(in_precision)
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
                again = {"loss": loss, "probe": lambda x=x, y=y: compute_loss(x, y)}
                scaler.step(tuner, **(again if probe else {}))
                scaler.update()
            tuner.zero_grad()
        if kind == "embedded":
            tuner.cool()
    return task.outcome(net, tuner, count, losses)


def train_compiled(task, kind, backend, given="compiled"):
    """Train with a compiled model; after the first step dynamo refuses to compile again.

    A tuner that is given the model inside notes its forwards there, which cuts the graph before it.
    """
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    net = task.net()
    compiled = torch.compile(net, backend=backend, fullgraph=given == "compiled")
    tuner = task.tuner(kind, compiled if given == "compiled" else net)
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
@pytest.mark.parametrize("given", ["original", "compiled"])
def test_a_compiled_model_is_compiled_once(task, kind, graphs, given):
    """Not once an arm, a step or a rate; an accept test needs a graph without gradients too."""
    backend = CompileCounter()
    net, tuner, counters = train_compiled(task, kind, backend, given)
    plain = task.plain(kind)
    assert backend.frame_count == counters["stats"]["unique_graphs"] == graphs
    breaks = counters.get("graph_break", {})
    assert sum(breaks.values()) == (graphs if given == "original" else 0)
    assert all("give the tuner the compiled module" in reason for reason in breaks)
    if kind == "embedded":
        assert tuner.summary() == plain.decisions[0]
    else:
        assert [str(info.to_dict()) for info in tuner.races] == plain.decisions[0]
    for name, value in plain.weights.items():
        assert torch.equal(net.state_dict()[name], value), name


def test_a_whole_graph_needs_a_tuner_that_knows_the_compiled_model(task):
    torch._dynamo.reset()
    net = task.net()
    compiled = torch.compile(net, backend=CompileCounter(), fullgraph=True)
    tuner = task.tuner("self-tuned", net)
    compute_loss = tuner.record(lambda x, y: task.loss(compiled, x, y))
    x, y = next(iter(task.loader()))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="give the tuner the compiled module"):
        compute_loss(x, y)
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "graphs"), [("self-tuned", 1), ("embedded", 2)])
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_inductor_compiles_once(task, kind, graphs, tmp_path, monkeypatch):
    """Real machine code, whose sums are rounded in another order: the same choice all the same."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with torch._inductor.config.patch(compile_threads=1, fallback_random=True):
        net, tuner, counters = train_compiled(task, kind, "inductor")
    assert counters["stats"]["unique_graphs"] == graphs
    plain = task.plain(kind)
    if kind == "embedded":
        assert str(tuner.summary()) == str(plain.decisions[0])
    else:
        assert (tuner.lr, tuner.extra_steps) == plain.decisions[1:3]
    # The gradient of a bias before BatchNorm is rounding alone, of which AdamW makes whole steps.
    free = {"0.bias", "1.running_mean"} if kind == "self-tuned" else set()
    for name in plain.weights.keys() - free:
        torch.testing.assert_close(
            net.state_dict()[name], plain.weights[name], rtol=1e-3, atol=1e-3
        )


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


def test_a_functional_call(task, brief_kind, counted):
    def compute(net, x, y):
        outputs = torch.func.functional_call(net, dict(net.named_parameters()), (x,))
        return functional.cross_entropy(outputs, y)

    train(task, brief_kind, counted, compute).assert_equals(task.plain(brief_kind))


def test_bfloat16_through_a_scaler(task, brief_kind, counted):
    """A scale of two to some power changes no bit of a gradient."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**6, growth_interval=10_000)
    found = train(task, brief_kind, counted, task.loss, scaler=scaler, autocast=torch.bfloat16)
    found.assert_equals(task.plain(brief_kind, autocast=torch.bfloat16))
    assert scaler.get_scale() == 2.0**6  # nothing overflowed


def test_float16_through_a_scaler(task, brief_kind, counted):
    """Small numbers survive by the scale, so it is compared with the same scale told by hand."""
    found = []
    for probe in (False, True):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=30)
        options = {"scaler": scaler, "autocast": torch.float16, "probe": probe}
        found.append(train(task, brief_kind, counted, task.loss, **options))
        assert scaler.get_scale() != 2.0**10
    if brief_kind != "embedded":  # without recorded losses the guard knows those that are given
        for outcome in found:
            outcome.decisions = outcome.decisions[0]
    found[0].assert_equals(found[1])


def test_clipping_once_more_for_the_other_arms(task, counted):
    """The same run by a closure that clips, and by a loop that clips and says how."""
    net = task.net()
    count = counted(net)
    tuner = task.tuner("self-tuned", net)
    torch.manual_seed(6)
    losses = []
    for _ in range(task.epochs):
        for x, y in task.loader():

            def closure(x=x, y=y):
                tuner.zero_grad()
                loss = task.loss(net, x, y)
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                return loss

            losses.append(tuner.step(closure).item())
    task.outcome(net, tuner, count, losses).assert_equals(task.plain("self-tuned", clip=0.1))


def test_a_hook_that_is_removed_clips_no_more(task):
    net = task.net()
    tuner = task.tuner("self-tuned", net)
    calls = []
    handle = tuner.after_replay(lambda: calls.append(1))
    x, y = next(iter(task.loader()))
    compute_loss = tuner.record(lambda: task.loss(net, x, y))
    for _ in range(2):
        compute_loss().backward()
        tuner.step()
        tuner.zero_grad()
        made = len(calls)
        handle.remove()
    assert made == len(calls) == 3  # of four arms; the first one's gradient is the loop's
