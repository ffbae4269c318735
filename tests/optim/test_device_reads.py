"""How often a step waits for its device: every read of a tensor is one."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from annealtune import SGDSA, SelfTuner, grid


class Reads(TorchDispatchMode):
    """Counts the values that are read: ``item``, ``float``, ``bool``, ``equal``."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in (torch.ops.aten._local_scalar_dense, torch.ops.aten.equal):
            self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def lists(monkeypatch):
    """Counts calls of ``tolist``, which copies from the device and passes every mode by."""
    found = []
    original = torch.Tensor.tolist

    def tolist(tensor):
        found.append(tensor)
        return original(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", tolist)
    return found


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))


def make_step(way, net, opt):
    def loss(x, y):
        return functional.cross_entropy(net(x), y)

    recorded = opt.record(loss)

    def step(x, y):
        if way == "closure":
            return opt.step(lambda: loss(x, y))
        recorded(x, y).backward()
        opt.step()
        return opt.zero_grad()

    return step


BATCHES = [(torch.randn(6, 4), torch.randint(3, (6,))) for _ in range(12)]


@pytest.mark.parametrize("way", ["closure", "record"])
@pytest.mark.parametrize("preset", ["paper-text", "paper-code"])
def test_a_step_reads_once(preset, way, lists):
    net = make_net()
    # Some steps are undone.
    opt = SGDSA(net, grid(lr=[0.1, 100.0]), preset=preset, batch_size=6, temperature=1e-3)
    step = make_step(way, net, opt)
    for x, y in BATCHES[:3]:
        step(x, y)  # the first step finds out about the base
    lists.clear()
    with Reads() as reads:
        for x, y in BATCHES[3:]:
            step(x, y)
    assert reads.count + len(lists) == len(BATCHES[3:])
    assert 0 < opt.moves.total.accepted < opt.moves.total.tried


@pytest.mark.parametrize("way", ["closure", "record"])
def test_outside_races_the_guard_alone_reads_and_once_in_eight_steps(way, lists):
    net = make_net()
    opt = SelfTuner(torch.optim.SGD(net.parameters(), lr=0.01), net, total_steps=400)
    step = make_step(way, net, opt)
    while opt.is_racing:
        step(*BATCHES[opt.steps % 12])
    lists.clear()
    with Reads() as reads:
        for _ in range(40):
            step(*BATCHES[opt.steps % 12])
    # The losses, and whether the weights and the statistics of BatchNorm are finite.
    assert reads.count + len(lists) == 15
