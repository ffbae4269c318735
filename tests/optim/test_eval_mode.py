"""`eval` and `train`, which frameworks call around an evaluation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from annealtune import SelfTuner


def run(steps: int, **options: Any) -> tuple[nn.Module, SelfTuner]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    base = torch.optim.AdamW(model.parameters())
    opt = SelfTuner(base, model, total_steps=240, **options)
    train(model, opt, steps)
    return model, opt


def train(model: nn.Module, opt: SelfTuner, steps: int, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(8, 4, generator=generator)
        opt.step(lambda x=x: model(x).square().mean())


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_the_average_is_there_meanwhile_and_nothing_is_left() -> None:
    model, opt = run(60)
    trained = state(model)
    with opt.averaged():
        average = state(model)
    assert not same(trained, average)
    opt.eval()
    opt.eval()
    assert same(state(model), average)
    opt.train()
    opt.train()
    assert same(state(model), trained)


@pytest.mark.parametrize("steps", [4, 60])  # in a race, and after it
def test_a_checkpoint_that_is_taken_meanwhile_continues_exactly(steps: int) -> None:
    model, opt = run(steps)
    assert opt.is_racing == (steps == 4)
    opt.eval()
    weights, saved = state(model), copy.deepcopy(opt.state_dict())
    assert same(state(model), weights)  # still evaluating
    opt.train()
    train(model, opt, 15, seed=2)

    other, again = run(0)
    other.load_state_dict(weights)  # the average, as a framework saves it
    again.load_state_dict(saved)
    train(other, again, 15, seed=2)
    assert same(state(model), state(other))
    assert opt.races == again.races
    with opt.averaged(), again.averaged():
        assert same(state(model), state(other))


def checkpoint() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights of a run at step 60 and the state of its optimizer."""
    model, opt = run(60)
    return state(model), copy.deepcopy(opt.state_dict())


def test_a_checkpoint_that_is_loaded_meanwhile_is_continued() -> None:
    weights, saved = checkpoint()
    model, opt = run(60)
    train(model, opt, 20, seed=3)
    opt.eval()
    model.load_state_dict(weights)
    opt.load_state_dict(saved)
    assert same(state(model), weights)
    train(model, opt, 10, seed=2)

    other, again = run(60)
    train(other, again, 10, seed=2)
    assert same(state(model), state(other))


@pytest.mark.parametrize("steps", [4, 60])  # in a race, and after it
def test_weights_that_are_loaded_meanwhile_stay(steps: int) -> None:
    weights, _ = checkpoint()
    weights["1.running_mean"] += 1
    model, opt = run(steps)
    opt.eval()
    model.load_state_dict(weights)
    saved = copy.deepcopy(opt.state_dict())
    assert same(state(model), weights)
    opt.train()
    assert same(state(model), weights)

    other, again = run(0)
    other.load_state_dict(weights)
    again.load_state_dict(saved)
    assert same(state(other), weights)


def test_statistics_that_a_forward_moves_meanwhile_are_put_back() -> None:
    model, opt = run(60)
    trained = state(model)
    opt.eval()
    model.train()(torch.ones(4, 4))
    saved = copy.deepcopy(opt.state_dict())
    opt.train()
    assert same(state(model), trained)
    other, again = run(0)
    again.load_state_dict(saved)
    assert same(state(other), trained)
