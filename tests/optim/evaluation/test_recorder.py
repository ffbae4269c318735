"""`record` and a bare ``step()`` for the optimizers that accept or undo steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from annealtune import SGDSA, EmbeddedTuner, StochasticSA, grid

STEPS = 200
RATES = grid(lr=[3.0, 1.0, 0.3, 0.1])


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)
    )


def minibatches(size: int = 16) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(STEPS, size, 6, generator=generator)
    return [(x, (x @ torch.ones(6, 3).tril()).argmax(1)) for x in inputs]


def tuner(model: nn.Module) -> EmbeddedTuner:
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    return EmbeddedTuner(base, model=model, neighborhood=RATES, total_steps=STEPS, seed=5)


def trained(
    make: Callable[[nn.Module], Any], step: Callable[[nn.Module, Any, Tensor, Tensor], None]
) -> tuple[nn.Module, Any]:
    model = network()
    optimizer = make(model)
    torch.manual_seed(6)
    for x, y in minibatches():
        step(model, optimizer, x, y)
    return model, optimizer


def by_closure(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> None:
    optimizer.step(lambda: functional.cross_entropy(model(x), y))


def recorded(
    model: nn.Module, optimizer: Any, x: Tensor, y: Tensor, *, backward: bool = True
) -> None:
    if not hasattr(optimizer, "compute_loss"):
        optimizer.compute_loss = optimizer.record(
            lambda x, y: functional.cross_entropy(model(x), y)
        )
    loss = optimizer.compute_loss(x, y)
    if backward:
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def assert_same(one: tuple[nn.Module, Any], other: tuple[nn.Module, Any]) -> None:
    for key, value in one[0].state_dict().items():
        assert torch.equal(value, other[0].state_dict()[key]), key
    assert one[1].summary() == other[1].summary()
    total = one[1].moves.total
    assert 0 < total.accepted < total.tried == STEPS  # the test would show a wrong verdict


@pytest.mark.parametrize("make", [tuner, lambda m: SGDSA(m, RATES, total_steps=STEPS, seed=5)])
def test_the_same_run_as_with_a_closure(make: Callable[[nn.Module], Any]) -> None:
    assert_same(trained(make, by_closure), trained(make, recorded))


def test_in_evaluation_mode_too() -> None:
    def make(model: nn.Module) -> SGDSA:
        return SGDSA(model, RATES, preset="paper-code", batch_size=16, temperature=0.01, seed=5)

    assert_same(trained(make, by_closure), trained(make, recorded))


def test_accumulation_decides_on_all_parts() -> None:
    def parts(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        return list(zip(x.chunk(4), y.chunk(4), strict=True))

    def accumulated(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> None:
        def closure() -> Tensor:
            optimizer.zero_grad()
            total = torch.zeros(())
            for part in parts(x, y):
                loss = functional.cross_entropy(model(part[0]), part[1]) / 4
                loss.backward()
                total = total + loss.detach()
            return total

        optimizer.step(closure)

    def bare(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> None:
        compute_loss = optimizer.record(lambda x, y: functional.cross_entropy(model(x), y))
        for part in parts(x, y):
            (compute_loss(*part) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()

    assert_same(trained(tuner, accumulated), trained(tuner, bare))


def test_a_scaler_changes_nothing() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def scaled(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> None:
        compute_loss = optimizer.record(lambda x, y: functional.cross_entropy(model(x), y))
        scaler.scale(compute_loss(x, y)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    assert_same(trained(tuner, recorded), trained(tuner, scaled))


def test_calls_without_gradients_and_nested_ones_do_not_count() -> None:
    def noisy(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> None:
        inner = optimizer.record(lambda x, y: functional.cross_entropy(model(x), y))
        outer = optimizer.record(lambda x, y: inner(x, y))
        model.eval()
        with torch.no_grad():
            inner(x[:4], y[:4])
        model.train()
        loss = outer(x, y)
        optimizer.zero_grad()  # between forward and backward, as many loops do
        loss.backward()
        optimizer.step()

    assert_same(trained(tuner, recorded), trained(tuner, noisy))


def test_a_skipped_step_is_forgotten() -> None:
    model = network()
    optimizer = tuner(model)
    compute_loss = optimizer.record(lambda x, y: functional.cross_entropy(model(x), y))
    (x, y), (others, targets), *_ = minibatches()
    compute_loss(others, targets).backward()
    optimizer.zero_grad()
    before = copy.deepcopy(model)
    torch.manual_seed(1)
    compute_loss(x, y).backward()
    optimizer.step()
    torch.manual_seed(1)
    assert optimizer.last_step is not None
    assert optimizer.last_step.loss == functional.cross_entropy(before(x), y).item()


def test_a_bare_step_without_a_record_says_what_to_do() -> None:
    model = network()
    optimizer = tuner(model)
    x, y = minibatches()[0]
    functional.cross_entropy(model(x), y).backward()
    with pytest.raises(
        TypeError, match=r"EmbeddedTuner\.step\(\) must be given.*opt\.record\(fn\)"
    ):
        optimizer.step()


def test_without_gradients() -> None:
    def make(model: nn.Module) -> StochasticSA:
        return StochasticSA(model, radius=0.05, total_steps=STEPS, seed=5)

    def bare(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> None:
        recorded(model, optimizer, x, y, backward=False)

    assert_same(trained(make, by_closure), trained(make, bare))


def test_a_function_may_return_a_dict_with_the_loss() -> None:
    def by_dict(model: nn.Module, optimizer: Any, x: Tensor, y: Tensor) -> None:
        compute = optimizer.record(lambda: {"loss": functional.cross_entropy(model(x), y), "x": x})
        compute()["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()

    assert_same(trained(tuner, by_closure), trained(tuner, by_dict))


def test_a_dict_without_a_loss_is_refused() -> None:
    optimizer = tuner(network())
    with pytest.raises(TypeError, match="a dict with one under 'loss', got None"):
        optimizer.record(lambda: {"lost": torch.zeros(1)})()
