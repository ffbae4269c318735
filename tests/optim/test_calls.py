"""How many of our own functions one step runs through. ``pytest -s`` prints the numbers."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import annealtune
from annealtune import SGDSA, SelfTuner

OURS = str(Path(annealtune.__file__).parent)


def sgd_sa(net):
    return SGDSA(net, preset="paper-text", epochs=2)


def self_tuner(net):
    return SelfTuner(torch.optim.AdamW(net.parameters()), model=net, total_steps=1000)


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
    calls = []

    def note(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            calls.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


# Steps before the one that is counted, and what it may take.
CASES = {
    "Algorithm 2, closure": (sgd_sa, by_closure, 3, 123),
    "Algorithm 2, record": (sgd_sa, by_record, 3, 151),
    "Algorithm 3, in a race of four": (self_tuner, by_record, 3, 460),
    "Algorithm 3, between races": (self_tuner, by_record, 40, 53),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_makes_few_calls(case):
    make, way, before, most = CASES[case]
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    x, y = torch.randn(8, 4), torch.randint(2, (8,))
    step = way(make(net), lambda: F.cross_entropy(net(x), y))
    for _ in range(before):
        step()
    calls = calls_of(step)
    print(f"{case}: {len(calls)} calls, at most {most}")
    assert 20 < len(calls) <= most
