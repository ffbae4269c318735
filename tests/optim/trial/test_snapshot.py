"""Snapshot: what it puts back, what it allocates, what it keeps alive."""

import gc
import math
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from annealtune import SGDSA, EmbeddedTuner, StochasticSA, grid
from annealtune.optim.trial.snapshot import Snapshot


def test_restores_weights_state_and_options_in_place(bits):
    weight = nn.Parameter(torch.tensor([1.0, -0.0, math.nan, math.inf]))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    weight.grad = torch.ones(4)
    optimizer.step()
    before = bits([weight, optimizer.state_dict()])
    average = optimizer.state[weight]["exp_avg"]

    snapshot = Snapshot(optimizer)
    snapshot.take()
    for _ in range(3):
        optimizer.param_groups[0]["lr"] = 5.0
        optimizer.param_groups[0]["added"] = [1]
        optimizer.step()
        optimizer.state["beside"] = {"steps": 1}
        snapshot.restore()
        assert bits([weight, optimizer.state_dict()]) == before
        assert optimizer.state[weight]["exp_avg"] is average
    assert "added" not in optimizer.param_groups[0]


def test_removes_state_that_was_not_there(bits):
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight])
    snapshot = Snapshot(optimizer)
    snapshot.take()
    weight.grad = torch.ones(2)
    optimizer.step()
    assert optimizer.state
    snapshot.restore()
    assert not optimizer.state


def test_copies_are_reused_and_only_what_is_new_is_allocated():
    weights = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 2))]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    snapshot = Snapshot(optimizer)
    snapshot.take()
    places = [c.data_ptr() for c in snapshot._copies]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    snapshot.take(gradients=True)
    assert [c.data_ptr() for c in snapshot._copies][:2] == places
    assert len(snapshot._copies) == 4
    snapshot.take()
    assert [c.data_ptr() for c in snapshot._copies][:2] == places


def test_follows_parameters_that_change_their_kind(bits):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    snapshot = Snapshot(optimizer)
    snapshot.take()
    model.to(torch.float64)
    snapshot.take()
    before = bits(model.state_dict())
    with torch.no_grad():
        model.weight.add_(1e-12)
    snapshot.restore()
    assert bits(model.state_dict()) == before


def test_frozen_parameters_cost_no_copy():
    frozen, trained = (
        nn.Parameter(torch.ones(1000), requires_grad=False),
        nn.Parameter(torch.ones(2)),
    )
    snapshot = Snapshot(torch.optim.SGD([frozen, trained], lr=0.1))
    snapshot.take()
    assert [c.numel() for c in snapshot._copies] == [2]


def test_gradients_die_with_zero_grad():
    """A snapshot that held them would cost one more copy during the next forward and backward."""
    model = nn.Linear(3, 2)
    tuner = SGDSA(model, grid(lr=[1e9, 0.1], momentum=[0.9]), temperature=0.0)
    verdicts = set()
    for _ in range(8):
        tuner.step(lambda: model(torch.ones(1, 3)).square().sum())
        verdicts.add(tuner.last_step.accepted)
        storages = [weakref.ref(p.grad.untyped_storage()) for p in model.parameters()]
        tuner.zero_grad()
        assert [storage() for storage in storages] == [None, None]
    assert verdicts == {True, False}


class Alive(TorchDispatchMode):
    """Sums the storages that were allocated meanwhile and are still alive; knows the peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        old = {t.untyped_storage()._cdata for t in self._tensors((args, kwargs))}
        for tensor in self._tensors(out):
            storage = tensor.untyped_storage()
            if storage._cdata not in old | self._known and storage.nbytes():
                self._known.add(storage._cdata)
                self.now += storage.nbytes()
                weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.now)
        return out

    @staticmethod
    def _tensors(tree):
        return [t for t in _pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]

    def _freed(self, key, size):
        self._known.discard(key)
        self.now -= size


def peak_of(train):
    gc.collect()
    with Alive() as alive:
        train()
        return alive.peak


def bytes_of(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def three_layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128), nn.Linear(128, 8))


SLACK = 60_000  # states of the random number generator, scalars

BASES = {
    "plain": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
}


def loop(model, optimizer, x, y, step, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        step(optimizer, loss.detach())


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("batch", [4, pytest.param(1024, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rate", [0.01, 1e6])
def test_a_run_needs_one_more_copy_of_weights_and_state(name, batch, rate):
    x, y = torch.randn(batch, 128), torch.randint(8, (batch,))

    def plain():
        model = three_layers()
        loop(model, BASES[name](model.parameters()), x, y, lambda opt, _: opt.step(), 4)

    extra = 0

    def tuned():
        nonlocal extra
        model = three_layers()
        tuner = EmbeddedTuner(
            BASES[name](model.parameters()), model=model, neighborhood=grid(lr=[rate]),
            temperature=0.0,
        )  # fmt: skip
        evaluate = lambda: F.cross_entropy(model(x), y)
        loop(model, tuner, x, y, lambda opt, loss: opt.step(loss=loss, probe=evaluate), 4)
        state = [t for entry in tuner.state.values() for t in entry.values() if t is not None]
        extra = bytes_of(model.parameters()) + bytes_of(state)
        if batch == 4 and not state:
            # The first try of a kind of setting also copies the gradients, for the time of the
            # base's step; it shows where activations are smaller than gradients.
            extra += bytes_of(model.parameters())

    plain_peak, tuned_peak = peak_of(plain), peak_of(tuned)
    assert tuned_peak <= plain_peak + extra + SLACK


def test_derivative_free_training_needs_one_copy_and_one_tensor():
    x, y = torch.randn(4, 128), torch.randint(8, (4,))
    model = three_layers()
    weights = bytes_of(model.parameters())
    largest = max(bytes_of([p]) for p in model.parameters())
    optimizer = StochasticSA(model, scaling="rms")

    def train():
        for _ in range(4):
            optimizer.step(lambda: F.cross_entropy(model(x), y))

    assert weights <= peak_of(train) <= weights + largest + SLACK


def test_the_measurement_sees_what_is_alive_together():
    def train():
        first = torch.ones(10_000)
        del first
        second = torch.ones(10_000)
        return second + 1

    assert peak_of(train) == 80_000


class Halving(torch.optim.SGD):
    """Halves the gradients behind autograd's back, but for groups that stand still."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if group["lr"] > 0:
                    p.grad.data.mul_(0.5)


def test_a_rate_of_zero_does_not_show_what_happens_to_gradients():
    weight = torch.nn.Parameter(torch.ones(4))
    tuner = EmbeddedTuner(Halving([weight], lr=0.1), neighborhood=grid(lr=[0.0, 0.1]))
    for _ in range(40):
        tuner.zero_grad()
        loss = (weight**2).sum()
        loss.backward()
        before = weight.grad.clone()
        setting = tuner.propose(loss)
        tuner.resolve(float("nan"))
        assert torch.equal(weight.grad, before), setting


@pytest.mark.parametrize(("options", "copies"), [({}, 1), ({"nesterov": True, "foreach": True}, 9)])
def test_gradients_are_copied_once_for_all_rates(monkeypatch, options, copies):
    asked = []
    take = Snapshot.take
    monkeypatch.setattr(
        Snapshot,
        "take",
        lambda self, *, gradients=False: (asked.append(gradients), take(self, gradients=gradients)),
    )
    weight = torch.nn.Parameter(torch.ones(4))
    base = torch.optim.SGD([weight], lr=0.1, momentum=0.9, **options)
    tuner = EmbeddedTuner(base, neighborhood=grid(lr=[0.01 * k for k in range(1, 10)]))
    for _ in range(9):
        tuner.step(lambda: (weight**2).sum())
    assert sum(asked) == copies
