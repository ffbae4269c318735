"""Checkpoints that version 0.2 has saved are loaded, and their runs go on.

``version_0_2.pt`` was written by version 0.2: ``python tests/optim/test_version_0_2.py FILE``. It
holds every run in the middle and at its end.
"""

import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SGDSA, Attribute, EmbeddedTuner, SelfTuner, StochasticSA, grid

FILE = Path(__file__).with_name("version_0_2.pt")


def sgd_sa(net):
    loop = {"drop": Attribute("p", net[3])}
    return SGDSA(net, grid(lr=[5.0, 0.1], drop=[0.1, 0.3]), loop=loop, epochs=4, average=True)


def adamw_sa(net):
    base = torch.optim.AdamW(net.parameters(), lr=0.01)
    return EmbeddedTuner(base, model=net, strategy="tabu", total_steps=40)


def stochastic_sa(net):
    return StochasticSA(net, preset="paper-code", batch_size=16)


def in_a_race(net):
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return SelfTuner(base, model=net, total_steps=200)


def after_a_race(net):
    return SelfTuner(torch.optim.AdamW(net.parameters()), model=net, total_steps=50)


# The runs, and after how many of their steps they are saved.
RUNS = {sgd_sa: 10, adamw_sa: 10, stochastic_sa: 10, in_a_race: 3, after_a_race: 30}


def begin(make):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = nn.Sequential(
            nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 2)
        )
    return net, make(net)


def train(net, optimizer, steps):
    for number in steps:
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(number))
        y = (x[:, 0] > x[:, 1]).long()
        torch.manual_seed(number)
        optimizer.step(lambda x=x, y=y: F.cross_entropy(net(x), y))
        if number % 8 == 7 and hasattr(optimizer, "cool"):
            optimizer.cool()


def saved(net, optimizer):
    return {"net": net.state_dict(), "optimizer": optimizer.state_dict()}


def write(path):
    runs = {}
    for make, middle in RUNS.items():
        net, optimizer = begin(make)
        train(net, optimizer, range(middle))
        if make is sgd_sa:
            optimizer.prepare()  # a setting waits for its step
        torch.save(saved(net, optimizer), path)
        half = torch.load(path)
        train(net, optimizer, range(middle, middle + 12))
        runs[make.__name__] = [half, saved(net, optimizer)]
    torch.save(runs, path)


def assert_alike(now, then):
    """Whatever version 0.2 has saved is the same; numbers up to what another machine rounds."""
    if isinstance(then, dict):
        for key in then:
            assert_alike(now.get(key), then[key])
    elif isinstance(then, list | tuple):
        assert len(now) == len(then)
        for ours, theirs in zip(now, then, strict=True):
            assert_alike(ours, theirs)
    elif isinstance(then, torch.Tensor):
        torch.testing.assert_close(now, then, rtol=1e-3, atol=1e-4)
    elif isinstance(then, float):
        assert now == pytest.approx(then, rel=1e-3, nan_ok=True)
    else:
        assert now == then


@pytest.mark.parametrize("make", RUNS, ids=lambda make: make.__name__)
def test_a_run_goes_on(make):
    half, whole = torch.load(FILE, weights_only=True)[make.__name__]
    net, optimizer = begin(make)
    with warnings.catch_warnings(action="ignore"):
        net.load_state_dict(half["net"])
        optimizer.load_state_dict(half["optimizer"])
        assert_alike(saved(net, optimizer), half)
        train(net, optimizer, range(RUNS[make], RUNS[make] + 12))
    assert_alike(saved(net, optimizer), whole)


if __name__ == "__main__":
    write(sys.argv[1])
