"""However the minibatch is told, the decisions and the weights are the same, bit for bit."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SelfTuner, grid

LENGTH = 240
STEPS = 60  # a race and some steps after it


@pytest.fixture
def outcome(make_net, make_base, make_batches, trained):
    """Train with a loop that is given the net and its tuner; return what came out."""

    def train(loop, kind="sgd", **options):
        torch.manual_seed(3)
        net = make_net()
        opt = SelfTuner(make_base(net, kind), net, total_steps=LENGTH, **options)
        step = loop(net, opt)
        for x, y in make_batches(STEPS):
            step(x, y)
        assert not opt.is_racing
        return trained(net, opt), [info.to_dict() for info in opt.races], opt.lr

    return train


def loss_of(net, x, y):
    return F.cross_entropy(net(x).float(), y)


def test_all_ways_are_one(outcome, ways, loss_function, kind):
    loops = [lambda net, opt, way=way: way(opt, loss_function(net)) for way in ways.values()]
    outcomes = [outcome(loop, kind) for loop in loops]
    assert all(one == outcomes[0] for one in outcomes)


def test_several_recorded_functions_in_one_step(outcome):
    def penalty(net):
        return 1e-3 * sum(p.square().sum() for p in net.parameters())

    def recorded(net, opt):
        first, second = opt.record(lambda x, y: loss_of(net, x, y)), opt.record(penalty)

        def step(x, y):
            first(x, y).backward()
            second(net).backward()
            opt.step()
            opt.zero_grad()

        return step

    def in_a_closure(net, opt):
        def closure(x, y):
            opt.zero_grad()
            losses = loss_of(net, x, y), penalty(net)
            for loss in losses:
                loss.backward()
            return sum(losses).detach()

        return lambda x, y: opt.step(lambda: closure(x, y))

    assert outcome(in_a_closure) == outcome(recorded)


def test_calls_that_take_no_part_are_left_alone(outcome, ways, loss_function):
    """Evaluation under no_grad, a loss whose backward nobody calls, and a step that is skipped."""

    def loop(net, opt):
        compute_loss = opt.record(lambda x, y: (loss_of(net, x, y), "whatever"))

        def step(x, y):
            kept = [b.clone() for b in net.buffers()], torch.get_rng_state()
            compute_loss(x * torch.nan, y)[0].backward()
            opt.zero_grad()
            for buffer, value in zip(net.buffers(), kept[0], strict=True):
                buffer.copy_(value)
            torch.set_rng_state(kept[1])
            loss, other = compute_loss(x, y)
            assert other == "whatever"
            opt.zero_grad()  # between forward and backward
            loss.backward()
            net.eval()
            with torch.no_grad():
                compute_loss(x + 1, y)
            compute_loss(x * 100, y)
            net.train()
            opt.step()
            opt.zero_grad()

        return step

    plain = outcome(lambda net, opt: ways["record"](opt, loss_function(net)))
    assert outcome(loop) == plain


def test_clipping_for_every_arm(outcome, ways, loss_function, kind):
    """Also of the run that starts again after its race."""

    def clip(net):
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)

    def in_a_closure(net, opt):
        def closure(x, y):
            opt.zero_grad()
            loss = loss_of(net, x, y)
            loss.backward()
            clip(net)
            return loss

        return lambda x, y: opt.step(lambda: closure(x, y))

    def before_step(net, opt):
        opt.before_step(lambda: clip(net))
        return recorded(net, opt)

    def recorded(net, opt):
        return ways["record"](opt, loss_function(net))

    clipped = outcome(in_a_closure, kind, around=0.01)
    assert clipped == outcome(before_step, kind, around=0.01)
    assert clipped != outcome(recorded, kind, around=0.01)


def test_what_step_returns(make_run, make_batches, way, ways):
    """The loss of the arm that was in the model, in a race and after it."""
    name = next(name for name, one in ways.items() if one is way)
    net, opt, step = make_run("sgd", name, total_steps=LENGTH)
    net.drop.p = 0.0
    for x, y in make_batches(STEPS):
        with torch.no_grad():
            buffers = [b.clone() for b in net.buffers()]
            expected = loss_of(net, x, y)
            for buffer, value in zip(net.buffers(), buffers, strict=True):
                buffer.copy_(value)
        assert torch.equal(step(x, y).detach(), expected)
    assert not opt.is_racing


def test_an_overflow_in_one_arm_only():
    """The arm whose gradient overflows makes no step, as a scaler would have it; the others do."""
    weight = nn.Parameter(torch.full((2,), 1.0))
    base = torch.optim.SGD([weight], lr=0.1)
    rates = grid(lr=[0.1, 1e15, 1e-3])
    opt = SelfTuner(base, nn.ParameterList([weight]), neighborhood=rates, warmup=0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**80, growth_interval=10_000)
    compute_loss = opt.record(lambda: weight.square().sum(), scaler=scaler)
    while opt.is_racing:
        scaler.scale(compute_loss()).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        assert opt.steps < 500
    assert opt.races[0].winner == 0
    # Its weights are about 1e15: their scaled gradient overflows, their loss does not.
    assert "loss" not in opt.races[0].dropped.get(1, "")
    expected = torch.ones(2)
    for _ in range(opt.steps):
        expected = expected - 0.1 * (2 * expected)
    torch.testing.assert_close(weight.detach(), expected)
    assert scaler.get_scale() == 2.0**80
