"""However the minibatch is told, the decisions and the weights are the same, bit for bit."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SelfTuner

LENGTH = 240
STEPS = 60  # a race and some steps after it


def micro_batches(x, y):
    return list(zip(x.chunk(4), y.chunk(4), strict=True))


@pytest.fixture
def outcome(make_net, make_base, make_batches, trained):
    """Train with a loop that is given the net, its tuner and a minibatch; return what came out."""

    def train(loop, kind="sgd", steps=STEPS, model=True, **options):
        torch.manual_seed(3)
        net = make_net()
        opt = SelfTuner(
            make_base(net, kind), model=net if model else None, total_steps=LENGTH, **options
        )
        step = loop(net, opt)
        for x, y in make_batches(steps):
            step(x, y)
        assert not opt.is_racing
        return trained(net, opt), [info.to_dict() for info in opt.races], opt.lr

    return train


def loss_of(net, x, y):
    return F.cross_entropy(net(x).float(), y)


def by_closure(compute):
    """Make a loop that steps with a closure around ``compute(net, x, y)``."""

    def loop(net, opt):
        return lambda x, y: opt.step(lambda: compute(net, x, y))

    return loop


def by_record(compute, factor=1.0):
    def loop(net, opt):
        compute_loss = opt.record(lambda x, y: compute(net, x, y))

        def step(x, y):
            (compute_loss(x, y) * factor).backward()
            opt.step()
            opt.zero_grad()

        return step

    return loop


def test_all_ways_are_one(outcome, ways, loss_function, kind):
    outcomes = [
        outcome(lambda net, opt, way=way: way(opt, loss_function(net)), kind)
        for way in ways.values()
    ]
    assert all(one == outcomes[0] for one in outcomes)


def test_without_a_model_the_random_state_can_be_given(outcome):
    def loop(net, opt):
        def step(x, y):
            start = torch.get_rng_state()
            opt.zero_grad()
            loss = loss_of(net, x, y)
            loss.backward()
            opt.step(loss=loss, probe=lambda: loss_of(net, x, y), rng_state=start)

        return step

    assert outcome(loop, model=False) == outcome(by_record(loss_of), model=False)


def test_accumulation_over_micro_batches(outcome, kind):
    def accumulated(net, opt):
        def step(x, y):
            def closure():
                opt.zero_grad()
                total = 0.0
                for part in micro_batches(x, y):
                    loss = loss_of(net, *part) / 4
                    loss.backward()
                    total = total + loss.detach()
                return total

            opt.step(closure)

        return step

    def recorded(net, opt):
        compute_loss = opt.record(lambda x, y: loss_of(net, x, y))

        def step(x, y):
            for part in micro_batches(x, y):
                (compute_loss(*part) / 4).backward()
            opt.step()
            opt.zero_grad()

        return step

    assert outcome(accumulated, kind) == outcome(recorded, kind)


def penalty(net):
    return 1e-3 * sum(p.square().sum() for p in net.parameters())


def test_several_recorded_functions_in_one_step(outcome):
    def both(net, opt):
        def step(x, y):
            def closure():
                opt.zero_grad()
                first, second = loss_of(net, x, y), penalty(net)
                first.backward()
                second.backward()
                return first.detach() + second.detach()

            opt.step(closure)

        return step

    def recorded(net, opt):
        first, second = opt.record(lambda x, y: loss_of(net, x, y)), opt.record(penalty)

        def step(x, y):
            first(x, y).backward()
            second(net).backward()
            opt.step()
            opt.zero_grad()

        return step

    assert outcome(both) == outcome(recorded)


def test_calls_that_take_no_part_are_left_alone(outcome):
    """Evaluation under no_grad, and a loss whose backward nobody calls."""

    def loop(net, opt):
        compute_loss = opt.record(lambda x, y: loss_of(net, x, y))

        def step(x, y):
            compute_loss(x, y).backward()
            net.eval()
            with torch.no_grad():
                compute_loss(x + 1, y)
            compute_loss(x * 100, y)
            net.train()
            opt.step()
            opt.zero_grad()

        return step

    assert outcome(loop) == outcome(by_record(loss_of))


def test_gradients_may_be_reset_between_forward_and_backward(outcome):
    def loop(net, opt):
        compute_loss = opt.record(lambda x, y: loss_of(net, x, y))

        def step(x, y):
            loss = compute_loss(x, y)
            opt.zero_grad()
            loss.backward()
            opt.step()

        return step

    assert outcome(loop) == outcome(by_record(loss_of))


def test_a_step_that_is_skipped_is_forgotten(outcome):
    """A minibatch that the loop throws away enters neither a race nor the guard after it."""

    def loop(net, opt):
        compute_loss = opt.record(lambda x, y: loss_of(net, x, y))

        def step(x, y):
            kept = [b.clone() for b in net.buffers()], torch.get_rng_state()
            compute_loss(x * torch.nan, y).backward()
            opt.zero_grad()
            for buffer, value in zip(net.buffers(), kept[0], strict=True):
                buffer.copy_(value)
            torch.set_rng_state(kept[1])
            compute_loss(x, y).backward()
            opt.step()
            opt.zero_grad()

        return step

    assert outcome(loop) == outcome(by_record(loss_of))


def test_the_factor_on_the_loss_is_repeated_for_every_arm(outcome, kind):
    scaled = outcome(by_record(loss_of, factor=0.3), kind)
    assert scaled == outcome(by_closure(lambda net, x, y: loss_of(net, x, y) * 0.3), kind)
    if kind == "sgd":
        assert scaled != outcome(by_record(loss_of), kind)


def test_a_backward_that_is_made_twice(outcome):
    def loop(net, opt):
        compute_loss = opt.record(lambda x, y: loss_of(net, x, y))

        def step(x, y):
            loss = compute_loss(x, y)
            loss.backward(retain_graph=True)
            loss.backward()
            opt.step()
            opt.zero_grad()

        return step

    assert outcome(loop) == outcome(by_record(loss_of, factor=2.0))


def test_a_tuple_that_begins_with_the_loss(outcome):
    def loop(net, opt):
        compute = opt.record(lambda x, y: (loss_of(net, x, y), "whatever"))

        def step(x, y):
            loss, other = compute(x, y)
            assert other == "whatever"
            loss.backward()
            opt.step()
            opt.zero_grad()

        return step

    assert outcome(loop) == outcome(by_record(loss_of))


def test_clipping_for_every_arm(outcome, kind):
    def in_closure(net, opt):
        def step(x, y):
            def closure():
                opt.zero_grad()
                loss = loss_of(net, x, y)
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                return loss

            opt.step(closure)

        return step

    def before_step(net, opt):
        opt.before_step(lambda: nn.utils.clip_grad_norm_(net.parameters(), 0.1))
        return by_record(loss_of)(net, opt)

    clipped = outcome(in_closure, kind, around=0.01)
    assert clipped == outcome(before_step, kind, around=0.01)
    assert clipped != outcome(by_record(loss_of), kind, around=0.01)


def test_clipping_ends_when_its_handle_is_removed(outcome):
    def loop(net, opt):
        opt.before_step(lambda: nn.utils.clip_grad_norm_(net.parameters(), 0.1)).remove()
        return by_record(loss_of)(net, opt)

    assert outcome(loop) == outcome(by_record(loss_of))


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


def test_a_race_that_is_told_nothing_says_what_is_missing(make_net, batch):
    net = make_net()
    opt = SelfTuner(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
    loss_of(net, *batch).backward()
    with pytest.raises(TypeError, match=r"record\(fn\).*step\(closure\)"):
        opt.step()
    with pytest.raises(TypeError, match="probe"):
        opt.step(loss=loss_of(net, *batch))
