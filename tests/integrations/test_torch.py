"""What torch offers around a training step: compilation."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch._inductor.config
from torch._dynamo.testing import CompileCounter


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
