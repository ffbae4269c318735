"""How often a step waits for its device: every read of a tensor is one."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from annealtune import SGDSA, NonFiniteLossError, SelfTuner, grid


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


@pytest.mark.parametrize("preset", ["paper-text", "paper-code"])
def test_a_broken_loss_leaves_no_trace_though_its_step_was_begun(preset):
    nets = [make_net() for _ in range(2)]
    rates, nan = grid(lr=[0.1, 100.0]), torch.nan
    opts = [SGDSA(n, rates, preset=preset, batch_size=6, temperature=1e-3) for n in nets]
    for number, (x, y) in enumerate(BATCHES):
        state = torch.get_rng_state()
        for net, opt in zip(nets, opts, strict=True):
            torch.set_rng_state(state)
            if opt is opts[0] and number % 3 == 1:
                before, rng = copy.deepcopy(net.state_dict()), copy.deepcopy(opt.state_dict())
                with pytest.raises(NonFiniteLossError):
                    opt.step(lambda net=net, x=x, y=y: functional.cross_entropy(net(x), y) * nan)
                for name, weight in net.named_parameters():
                    assert torch.equal(weight, before[name])
                assert str(opt.state_dict()) == str(rng)
                # A forward was made, which moves the statistics.
                net.load_state_dict(before)
                torch.set_rng_state(state)
            opt.step(lambda net=net, x=x, y=y: functional.cross_entropy(net(x), y))
    assert opts[0].last_step == opts[1].last_step
    assert opts[0].summary() == opts[1].summary()
    for one, other in zip(
        nets[0].state_dict().values(), nets[1].state_dict().values(), strict=True
    ):
        assert torch.equal(one, other)


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
