"""A probe changes nothing but the verdict: random numbers, buffers, gradients, flags, graphs."""

import contextlib
import copy
import functools
import math

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.nn import functional as F

from annealtune import SGDSA, EmbeddedTuner, grid


@pytest.mark.parametrize("preset", [None, "paper-code"])
def test_a_rate_of_zero_worsens_by_exactly_zero(step, preset, net, batch):
    """Whatever else comes between two steps: validation, statistics, random numbers."""
    options = {"temperature": 0.0} if preset is None else {"preset": preset, "batch_size": 16}
    tuner = SGDSA(net, grid(lr=[0.0]), **options)
    x, y = batch
    for _ in range(3):
        net.eval()
        net(x)
        net.train()
        with torch.no_grad():
            net(x)
        torch.rand(5)
        step(tuner, net, x, y)
        assert tuner.last_step.worsening == 0
    assert tuner.moves.total == (3, 0, 3)


@pytest.fixture
def stack():
    """A net without counters, which would make torch compile it again at every forward."""
    torch._dynamo.reset()
    yield nn.Sequential(
        nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 3)
    )
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("given", "preset"), [("original", None), ("compiled", "paper-code"), ("compiled", None)]
)
def test_a_compiled_model_is_replayed_and_not_compiled_again(step, given, preset, stack, batch):
    counter = CompileCounter()
    compiled = torch.compile(stack, backend=counter)
    model = compiled if given == "compiled" else stack
    tuner = SGDSA(model, grid(lr=[0.0]), preset=preset, batch_size=16)
    for _ in range(6):
        step(tuner, compiled, *batch)
        assert tuner.last_step.worsening == 0
    assert counter.frame_count == 2  # with and without gradients


def test_a_failed_step_does_not_mislead_the_next_one(step, net, batch):
    x, y = batch
    tuner = SGDSA(net, grid(lr=[0.0]), temperature=0.0)
    forwards = 0

    def failing(x):
        nonlocal forwards
        forwards += 1
        out = net(x)
        if forwards == 2:  # at the tentative point
            raise ZeroDivisionError
        return out

    with pytest.raises(ZeroDivisionError):
        step(tuner, failing, x, y)
    tuner.zero_grad()
    step(tuner, net, x, y)
    assert tuner.last_step.worsening == 0


@pytest.mark.parametrize("switch", ["train", "eval"])
@pytest.mark.parametrize("preset", [None, "paper-code"])
def test_training_flags_are_kept_one_by_one(switch, preset, net, batch):
    x, y = batch
    net.norm.eval()
    flags = {name: module.training for name, module in net.named_modules()}
    tuner = SGDSA(net, grid(lr=[0.1]), preset=preset, batch_size=16)

    def objective():
        getattr(net, switch)()
        return F.cross_entropy(net(x), y)

    tuner.step(lambda: F.cross_entropy(net(x), y), objective=objective)
    assert {name: module.training for name, module in net.named_modules()} == flags
    assert not net.norm.training


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_sharded_weights_are_gathered_anew_after_a_rejection(process_group):
    """After a forward without gradients FSDP keeps the gathered weights: the rejected ones."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    sharded = copy.deepcopy(plain)
    mesh = init_device_mesh("cpu", (1,))
    fully_shard(sharded[0], mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    x, y = torch.randn(16, 4), torch.randint(3, (16,))
    moves = []
    for model in (plain, sharded):
        base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        tuner = EmbeddedTuner(base, model, neighborhood=grid(lr=[20.0, 0.01]), temperature=0.0)
        for _ in range(10):
            tuner.step(lambda model=model: F.cross_entropy(model(x), y))
            moves.append(tuner.last_step)
    assert moves[:10] == moves[10:]
    assert {info.accepted for info in moves} == {True, False}


@pytest.fixture
def step(way, loss_function):
    """Make one step with a forward, in each of the ways."""
    return lambda tuner, forward, x, y: way(tuner, loss_function(forward))(x, y)


def test_an_autocast_does_not_answer_with_the_weights_of_before(make_net, make_batches):
    """Casts of weights are cached until the autocast ends, even if the weights have changed."""
    narrow = functools.partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    plain, found = contextlib.nullcontext, []
    for around in (True, False):
        net = make_net()
        tuner = SGDSA(net, grid(lr=[0.5]), temperature=math.inf)
        torch.manual_seed(0)
        for x, y in make_batches(6):

            def loss_of(x=x, y=y, net=net, cast=plain if around else narrow):
                with cast():
                    return F.cross_entropy(net(x), y)

            with narrow() if around else plain():
                tuner.step(loss_of)
            found.append(tuner.last_step.worsening)
    assert found[:6] == found[6:]
    assert 0 not in found
