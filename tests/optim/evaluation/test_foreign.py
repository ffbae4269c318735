"""What would be wrong without a word around ``step`` is refused."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from annealtune import EmbeddedTuner, SelfTuner


def make(kind: Any) -> tuple[nn.Module, Any]:
    model = nn.Linear(2, 1)
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, kind(base, model=model, total_steps=240)


@pytest.fixture(params=[1, 2])
def world(request: pytest.FixtureRequest) -> Iterator[int]:
    torch.distributed.init_process_group(
        "fake", rank=0, world_size=request.param, store=FakeStore()
    )
    yield request.param
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("kind", [EmbeddedTuner, SelfTuner])
def test_several_processes(kind: Any, world: int) -> None:
    model, opt = make(kind)
    before = model.weight.detach().clone()
    step = functools.partial(opt.step, lambda: model(torch.ones(4, 2)).square().mean())
    if world == 1:
        step()
        return
    with pytest.raises(RuntimeError, match="a world of 2: each would decide by its own losses"):
        step()
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
def test_a_closure_with_hooks_in_it(package: str) -> None:
    """Lightning passes a partial of a method; its module is all that is looked at."""
    _, opt = make(EmbeddedTuner)

    def wrapped() -> Any:
        raise AssertionError("it was run")

    wrapped.__module__ = f"{package}.pytorch.plugins.precision.precision"
    with pytest.raises(TypeError, match=r"Lightning's closure.*TunerCallback\(\)"):
        opt.step(functools.partial(wrapped))
