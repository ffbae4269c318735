"""One task, its tuners and the plain loop that every framework must agree with."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from annealtune import EmbeddedTuner, SelfTuner, grid

STEPS = 240
EPOCHS = 4
SAMPLES = 16  # in one step
RATES = grid(lr=[30.0, 10.0, 1.0, 0.1])  # the largest of them are rejected often


class Counted:
    """Counts forwards and backwards of a net."""

    def __init__(self, net: nn.Module) -> None:
        self.forwards = self.backwards = 0
        net.register_forward_hook(self._forward)
        last = list(net.parameters())[-1]
        last.register_post_accumulate_grad_hook(self._backward)

    def _forward(self, *_: Any) -> None:
        self.forwards += 1

    def _backward(self, _: Any) -> None:
        self.backwards += 1


@dataclasses.dataclass
class Outcome:
    """All that two runs must share."""

    decisions: Any
    weights: dict[str, Tensor]
    forwards: int
    backwards: int
    losses: list[float]

    def assert_equals(self, other: Outcome) -> None:
        assert self.decisions == other.decisions
        assert self.weights.keys() == other.weights.keys()
        for name, value in self.weights.items():
            assert torch.equal(value, other.weights[name]), name
        assert (self.forwards, self.backwards) == (other.forwards, other.backwards)
        assert self.losses == other.losses


class Task:
    """The net, its data and its loss."""

    steps, epochs, samples = STEPS, EPOCHS, SAMPLES

    def __init__(self) -> None:
        self._known: dict[Any, Outcome] = {}

    def net(self) -> nn.Module:
        torch.manual_seed(3)
        inside = [nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2)]
        return nn.Sequential(nn.Linear(6, 16), *inside, nn.Linear(16, 3))

    def data(self, steps: int = STEPS) -> TensorDataset:
        generator = torch.Generator().manual_seed(4)
        count = steps // EPOCHS * SAMPLES
        inputs = torch.randn(count, 6, generator=generator)
        noise = torch.randn(count, 3, generator=generator)
        labels = (inputs @ torch.ones(6, 3).tril() + noise).argmax(1)
        return TensorDataset(inputs, labels)

    def loader(self, accumulate: int = 1, **options: Any) -> DataLoader:
        """Cut the data into minibatches; torch's own generator is left alone."""
        options = {"generator": torch.Generator().manual_seed(5)} | options
        return DataLoader(self.data(), batch_size=SAMPLES // accumulate, **options)

    def tuner(self, kind: str, net: nn.Module, **options: Any) -> Any:
        if kind == "self-tuned":
            base: torch.optim.Optimizer = torch.optim.AdamW(net.parameters())
            return SelfTuner(base, model=net, total_steps=STEPS, **options)
        base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
        if kind == "races of an H":
            options = {"neighborhood": RATES} | options
            return SelfTuner(base, model=net, total_steps=STEPS, **options)
        options = {"neighborhood": RATES, "total_steps": STEPS} | options
        return EmbeddedTuner(base, model=net, seed=5, **options)

    @staticmethod
    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(net(x).float(), y)

    def outcome(self, net: nn.Module, tuner: Any, count: Counted, losses: list[float]) -> Outcome:
        if isinstance(tuner, SelfTuner):
            races = [str(info.to_dict()) for info in tuner.races]
            assert races  # else the test would compare nothing
            decisions: Any = (races, tuner.lr, tuner.extra_steps, tuner.history.events)
        else:
            total = tuner.moves.total
            assert 0.2 * total.tried < total.accepted < 0.9 * total.tried
            decisions = (tuner.summary(), tuner.last_step, tuner.temperature)
        weights = {name: value.clone() for name, value in net.state_dict().items()}
        return Outcome(decisions, weights, count.forwards, count.backwards, losses)

    def plain(self, *args: Any, **options: Any) -> Outcome:
        """Train by a loop that anybody would write; the same run is not made twice."""
        key = (args, tuple(sorted(options.items())))
        if key not in self._known:
            self._known[key] = self._plain(*args, **options)
        return self._known[key]

    def _plain(
        self,
        kind: str,
        accumulate: int = 1,
        *,
        clip: float | None = None,
        autocast: torch.dtype | None = None,
        scale: float | None = None,
        averaged: bool = False,
        **options: Any,
    ) -> Outcome:
        net = self.net()
        count = Counted(net)
        tuner = self.tuner(kind, net, **options)
        scaler = torch.amp.GradScaler(
            "cpu", init_scale=scale or 1.0, growth_interval=10_000, enabled=scale is not None
        )
        compute_loss = tuner.record(lambda x, y: self.loss(net, x, y), scaler=scaler)
        if clip is not None and isinstance(tuner, SelfTuner):
            tuner.after_replay(lambda: nn.utils.clip_grad_norm_(net.parameters(), clip))
        torch.manual_seed(6)
        losses: list[float] = []
        for _ in range(EPOCHS):
            for number, (x, y) in enumerate(self.loader(accumulate), start=1):
                with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                    loss = compute_loss(x, y)
                losses.append(loss.item())
                scaler.scale(loss / accumulate).backward()
                if number % accumulate == 0:
                    if clip is not None:
                        scaler.unscale_(tuner)
                        nn.utils.clip_grad_norm_(net.parameters(), clip)
                    scaler.step(tuner)
                    scaler.update()
                    tuner.zero_grad()
            if isinstance(tuner, EmbeddedTuner):
                tuner.cool()
        if averaged:
            with tuner.averaged():
                return self.outcome(net, tuner, count, losses)
        return self.outcome(net, tuner, count, losses)


@pytest.fixture(scope="session")
def task() -> Task:
    return Task()


@pytest.fixture(scope="session")
def counted() -> Callable[[nn.Module], Counted]:
    return Counted


OTHERS = ("races of an H", "embedded")


@pytest.fixture(
    params=["self-tuned", pytest.param("races of an H", marks=pytest.mark.slow), "embedded"]
)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["self-tuned", *(pytest.param(k, marks=pytest.mark.slow) for k in OTHERS)])
def brief_kind(request: pytest.FixtureRequest) -> str:
    """One kind in the fast tests, all of them in the slow ones."""
    return request.param


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Accelerate keeps its settings in the process; the next test may want others."""
    yield
    state = sys.modules.get("accelerate.state")
    if state is not None:
        for kept in (state.AcceleratorState, state.GradientState, state.PartialState):
            kept._reset_state()
