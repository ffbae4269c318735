"""A probe that leaves the autocast away is noticed: it would compare two different losses."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from annealtune import EmbeddedTuner, SelfTuner

BFLOAT16 = torch.autocast("cpu", dtype=torch.bfloat16)


def make(kind: str) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    tuner = EmbeddedTuner if kind == "embedded" else SelfTuner
    return model, tuner(base, model=model, total_steps=240)


def step(model: nn.Module, opt: Any, first: Any, again: Any, **options: Any) -> None:
    x = torch.randn(8, 4)

    def compute(precision: Any) -> Tensor:
        with precision:
            return model(x).float().square().mean()

    opt.zero_grad()
    loss = compute(first)
    loss.backward()
    opt.step(loss=loss, probe=lambda: compute(again), **options)


@pytest.mark.parametrize("kind", ["embedded", "self-tuned"])
@pytest.mark.parametrize("order", [(BFLOAT16, None), (None, BFLOAT16)])
def test_another_precision_is_refused_and_undone(kind: str, order: tuple[Any, Any]) -> None:
    model, opt = make(kind)
    first, again = (precision or contextlib.nullcontext() for precision in order)
    before = [p.detach().clone() for p in model.parameters()]
    words = r"step\(probe=.*torch.autocast\('cpu', torch.bfloat16\).*opt.record\(fn\)"
    with pytest.raises(ValueError, match=words):
        step(model, opt, first, again)
    if kind == "embedded":
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("kind", ["embedded", "self-tuned"])
def test_the_same_precision_is_left_alone(kind: str) -> None:
    model, opt = make(kind)
    for _ in range(3):
        step(model, opt, BFLOAT16, BFLOAT16)
        step(model, opt, contextlib.nullcontext(), torch.autocast("cpu", enabled=False))


def test_an_objective_may_use_any() -> None:
    model, opt = make("embedded")
    step(model, opt, BFLOAT16, BFLOAT16, objective=lambda: model(torch.ones(1, 4)).square().sum())


def test_a_closure_after_a_loss_is_compared_with_nothing() -> None:
    model, opt = make("embedded")
    step(model, opt, BFLOAT16, BFLOAT16)
    opt.step(lambda: model(torch.ones(2, 4)).square().mean())
