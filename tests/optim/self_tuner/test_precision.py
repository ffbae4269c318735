"""Mixed precision: a GradScaler and autocast, repeated for every arm."""

import pytest
import torch
from torch.nn import functional as F

from annealtune import SelfTuner, grid

LENGTH, STEPS = 240, 60


@pytest.fixture
def outcome(make_net, make_base, make_batches, trained):
    def train(loop, kind="sgd", **options):
        torch.manual_seed(3)
        net = make_net()
        opt = SelfTuner(make_base(net, kind), model=net, total_steps=LENGTH, **options)
        step = loop(net, opt)
        for x, y in make_batches(STEPS):
            step(x, y)
        assert not opt.is_racing
        return trained(net, opt), [info.to_dict() for info in opt.races], opt.lr

    return train


def plain(net, opt):
    return lambda x, y: opt.step(lambda: F.cross_entropy(net(x).float(), y))


def test_a_scaler_gives_the_run_without_one(outcome, kind):
    """Its scale is a power of two: gradients are the same, bit for bit."""

    def scaled(net, opt):
        scaler = torch.amp.GradScaler("cpu")
        compute_loss = opt.record(lambda x, y: F.cross_entropy(net(x).float(), y))

        def step(x, y):
            scaler.scale(compute_loss(x, y)).backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()

        return step

    def scaled_probe(net, opt):
        scaler = torch.amp.GradScaler("cpu")

        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(net(x).float(), y)
            scaler.scale(loss).backward()
            scaler.step(opt, loss=loss, probe=lambda: F.cross_entropy(net(x).float(), y))
            scaler.update()

        return step

    expected = outcome(plain, kind)
    assert outcome(scaled, kind) == expected
    assert outcome(scaled_probe, kind) == expected


def test_a_scaler_that_is_switched_off(outcome):
    def loop(net, opt):
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        compute_loss = opt.record(lambda x, y: F.cross_entropy(net(x).float(), y))

        def step(x, y):
            scaler.scale(compute_loss(x, y)).backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()

        return step

    assert outcome(loop) == outcome(plain)


def test_a_scaler_that_skips_the_first_steps(make_net, make_base, make_batches, trained):
    ends = []
    for scale in (1.0, 2.0**127):
        torch.manual_seed(3)
        net = make_net()
        opt = SelfTuner(make_base(net, "sgd"), model=net, total_steps=LENGTH)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=10_000)
        compute_loss = opt.record(lambda x, y: 8 * F.cross_entropy(net(x), y))  # noqa: B023
        batches, skipped = make_batches(STEPS), 0
        while batches:
            x, y = batches[0]
            kept = [b.clone() for b in net.buffers()], torch.get_rng_state()
            scaler.scale(compute_loss(x, y)).backward()
            before = opt.steps
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            if opt.steps == before:  # the scaler left it out: the same minibatch once more
                skipped += 1
                for buffer, value in zip(net.buffers(), kept[0], strict=True):
                    buffer.copy_(value)
                torch.set_rng_state(kept[1])
            else:
                del batches[0]
        ends.append((trained(net, opt), [info.to_dict() for info in opt.races]))
    assert skipped
    assert ends[0] == ends[1]


def test_an_overflow_in_one_arm_only(make_batches):
    """The arm whose gradient overflows makes no step, as a scaler would have it; the others do."""
    weight = torch.nn.Parameter(torch.full((2,), 1.0))
    opt = SelfTuner(
        torch.optim.SGD([weight], lr=0.1), neighborhood=grid(lr=[0.1, 1e15, 1e-3]), warmup=0
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**80, growth_interval=10_000)
    compute_loss = opt.record(lambda: weight.square().sum())
    count = 0
    while opt.is_racing:
        scaler.scale(compute_loss()).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        count += 1
        assert count < 500
    assert opt.races[0].winner == 0
    # Its weights are about 1e15: their scaled gradient overflows, their loss does not.
    assert "loss" not in opt.races[0].dropped.get(1, "")
    expected = torch.ones(2)
    for _ in range(count):
        expected = expected - 0.1 * (2 * expected)
    torch.testing.assert_close(weight.detach(), expected)
    assert scaler.get_scale() == 2.0**80


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_autocast_is_repeated_for_every_arm(outcome, kind):
    def in_bfloat16(net, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(net(x).float(), y)

    def by_closure(net, opt):
        return lambda x, y: opt.step(lambda: in_bfloat16(net, x, y))

    def inside(net, opt):
        compute_loss = opt.record(lambda x, y: in_bfloat16(net, x, y))

        def step(x, y):
            compute_loss(x, y).backward()
            opt.step()
            opt.zero_grad()

        return step

    def around(net, opt):
        compute_loss = opt.record(lambda x, y: F.cross_entropy(net(x).float(), y))

        def step(x, y):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = compute_loss(x, y)
            loss.backward()
            opt.step()
            opt.zero_grad()

        return step

    expected = outcome(by_closure, kind)
    assert outcome(inside, kind) == expected
    assert outcome(around, kind) == expected
    assert outcome(plain, kind) != expected
