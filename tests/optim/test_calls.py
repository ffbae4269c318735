"""How many of our own functions one step runs through. ``pytest -s`` prints the numbers."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import annealtune
from annealtune import SGDSA, SelfTuner, grid

OURS = str(Path(annealtune.__file__).parent)


def sgd_sa(net):
    return SGDSA(net, preset="paper-text", epochs=2)


def self_tuner(net):
    return SelfTuner(torch.optim.AdamW(net.parameters()), net, total_steps=1000)


def three_arms(net):
    rates = grid(lr=[1e-3, 3e-3, 1e-2])
    return SelfTuner(torch.optim.AdamW(net.parameters()), net, neighborhood=rates)


def by_closure(optimizer, loss):
    return lambda: optimizer.step(loss)


def by_record(optimizer, loss):
    compute_loss = optimizer.record(loss)

    def step():
        compute_loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def calls_of(function):
    calls, files = 0, set()

    def note(frame, event, arg):
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            calls += 1
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls, len(files)


# Steps before the one that is counted, and what it may take: calls and files.
CASES = {
    "Algorithm 2, closure": (sgd_sa, by_closure, 3, 80, 9),
    "Algorithm 2, record": (sgd_sa, by_record, 3, 88, 10),
    "Algorithm 3, in a race of three": (three_arms, by_record, 3, 150, 10),
    "Algorithm 3, between races, closure": (self_tuner, by_closure, 40, 30, 7),
    "Algorithm 3, between races": (self_tuner, by_record, 40, 30, 7),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_makes_few_calls(case):
    make, way, before, most, files = CASES[case]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    x, y = torch.randn(8, 4), torch.randint(2, (8,))
    step = way(make(net), lambda: F.cross_entropy(net(x), y))
    for _ in range(before):
        step()
    found = calls_of(step)
    print(f"{case}: {found[0]} calls in {found[1]} files, at most {most} in {files}")
    assert found[0] <= most
    assert found[1] <= files
