"""Outside races nobody waits for the device: the guard alone reads, once in eight steps."""

import contextlib
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune.optim.guard import EVERY
from annealtune.optim.self_tuner import SelfTuner

READERS = "item __float__ __bool__ __int__ __index__ tolist numpy cpu equal is_nonzero nonzero"


@contextlib.contextmanager
def counted(monkeypatch):
    """Count every read of a tensor's value."""
    reads = Counter()

    def counting(name, original):
        def read(*args, **kwargs):
            reads[name] += 1
            return original(*args, **kwargs)

        return read

    with monkeypatch.context() as patch:
        for name in READERS.split():
            patch.setattr(torch.Tensor, name, counting(name, getattr(torch.Tensor, name)))
        for name in ("equal", "allclose", "is_nonzero"):
            patch.setattr(torch, name, counting(name, getattr(torch, name)))
        yield reads


def make(kind, *, tensor_rate=False, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    rate = torch.tensor(0.01) if tensor_rate else 0.01
    base = kind(model.parameters(), lr=rate, foreach=not tensor_rate)
    return model, SelfTuner(base, model=model, total_steps=400, **settings)


def batches():
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(8, 4, generator=generator), torch.randint(0, 2, (8,), generator=generator))
        for _ in range(16)
    ]


def recorded(model, optimizer):
    compute_loss = optimizer.record(lambda x, y: F.cross_entropy(model(x), y))

    def step(x, y):
        optimizer.zero_grad()
        compute_loss(x, y).backward()
        optimizer.step()

    return step


def by_closure(model, optimizer):
    def step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)

    return step


def by_loss(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step(loss=loss, probe=lambda: F.cross_entropy(model(x), y))

    return step


def reads_after_the_race(monkeypatch, model, optimizer, way, steps=5 * EVERY):
    step, data = way(model, optimizer), batches()
    while optimizer.is_racing:
        step(*data[optimizer.steps % 16])
    with counted(monkeypatch) as reads:
        for _ in range(steps):
            step(*data[optimizer.steps % 16])
    return reads


@pytest.mark.parametrize("way", [recorded, by_closure, by_loss])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_only_the_guard_reads_and_once_in_eight_steps(monkeypatch, kind, way):
    model, optimizer = make(kind)
    own = control(monkeypatch, kind)

    reads = reads_after_the_race(monkeypatch, model, optimizer, way)

    reads.subtract(own)
    # The losses, and whether the weights and the statistics of BatchNorm are finite.
    assert +reads == Counter({"tolist": 15})
    assert sum(own.values()) < 5 * EVERY * 20  # the control has not counted itself away


def control(monkeypatch, kind):
    """Count what the bare base and the loop read themselves."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    base = kind(model.parameters(), lr=0.01, foreach=True)
    data = batches()
    for x, y in data[:2]:
        F.cross_entropy(model(x), y).backward()
        base.step()
    with counted(monkeypatch) as reads:
        for number in range(5 * EVERY):
            x, y = data[number % 16]
            base.zero_grad()
            F.cross_entropy(model(x), y).backward()
            base.step()
    return reads


def test_plain_sgd_reads_nothing_itself(monkeypatch):
    assert not control(monkeypatch, torch.optim.SGD)


def test_a_rate_in_a_tensor_is_not_read(monkeypatch):
    model, optimizer = make(torch.optim.SGD, tensor_rate=True)

    reads = reads_after_the_race(monkeypatch, model, optimizer, recorded)

    assert reads["tolist"] == 15
    # Torch's own SGD may read its rate, once for every parameter and step.
    ours = sum(reads.values()) - 10
    assert ours <= 5 * EVERY * len(list(model.parameters()))


def test_the_counter_counts(monkeypatch):
    with counted(monkeypatch) as reads:
        tensor = torch.ones(1)
        _ = tensor.item(), float(tensor), bool(tensor), tensor.tolist(), torch.equal(tensor, tensor)

    assert min(reads[name] for name in ("item", "__float__", "__bool__", "tolist", "equal")) >= 1
