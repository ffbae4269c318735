"""Whatever interrupts a step of a race: no arm is left half old, half new."""

import copy
import functools

import pytest
import torch
from torch import nn

from annealtune import SelfTuner, grid
from annealtune.optim.trial.run_state import RunState


@pytest.fixture
def run():
    """A net with momentum, and what another run of the same kind has come to."""
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    kept = RunState(base, net)
    net(torch.randn(8, 3)).square().mean().backward()
    base.step()
    return net, base, kept


@pytest.mark.parametrize("at", range(1, 22))
def test_an_exchange_is_ended_before_an_interruption_is_heard(run, bits, monkeypatch, at):
    """Break off at the first write, the second, ..., the last, and while the optimizer is given."""
    net, base, kept = run
    before = bits([net.state_dict(), base.state_dict()])
    state = kept.state_dict()
    other = bits([[*state["weights"], *state["buffers"].values()]])
    calls, copy_, clear = 0, torch.Tensor.copy_, torch.clear_autocast_cache

    def interrupted(function):
        def wrapper(*args):
            nonlocal calls
            result = function(*args)
            calls += 1
            if calls == at:
                raise KeyboardInterrupt
            return result

        return wrapper

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "copy_", interrupted(copy_))
        patch.setattr(torch, "clear_autocast_cache", interrupted(clear))
        if at <= 15:  # seven tensors, each written twice, and the end
            with pytest.raises(KeyboardInterrupt):
                kept.exchange()
        else:
            kept.exchange()
    assert bits([[*net.parameters(), *net.buffers()]]) == other
    assert not base.state
    kept.exchange()
    assert bits([net.state_dict(), base.state_dict()]) == before


@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_step_that_is_interrupted_in_its_forward_can_be_made_again(
    make_run, make_batches, loss_function, trained, at
):
    """Arms that have not stepped yet do not; the race goes on, also with that minibatch."""
    net, opt, _ = make_run(neighborhood=grid(lr=[0.1, 0.05, 0.02]))
    batches = make_batches(300)
    compute = loss_function(net)
    for x, y in batches[:5]:
        opt.step(lambda: compute(x, y))  # noqa: B023
    calls = 0

    def closure():
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return compute(*batches[5])

    if at <= 3:
        with pytest.raises(KeyboardInterrupt):
            opt.step(closure)
    else:
        opt.step(closure)
    for x, y in batches[6:]:
        opt.step(lambda: compute(x, y))  # noqa: B023
    assert not opt.is_racing
    assert not any("interrupted" in why for why in opt.races[0].dropped.values())
    assert all(p.isfinite().all() for p in net.parameters())


def test_an_arm_whose_step_was_torn_is_dropped():
    """A step of the base that fails leaves weights that nobody can know."""

    class Failing(torch.optim.SGD):
        steps = 0

        def step(self, closure=None):
            type(self).steps += 1
            super().step()
            if type(self).steps == 5:
                raise MemoryError("in the middle")

    weight = nn.Parameter(torch.ones(2))
    base = Failing([weight], lr=0.1)
    opt = SelfTuner(base, neighborhood=grid(lr=[0.1, 0.05, 0.02]))
    opt.step(lambda: weight.square().sum())
    with pytest.raises(MemoryError):
        opt.step(lambda: weight.square().sum())
    while opt.is_racing:
        opt.step(lambda: weight.square().sum())
    (info,) = opt.races
    torn = [arm for arm, why in info.dropped.items() if "interrupted" in why]
    assert len(torn) == 1
    assert info.winner not in torn


@pytest.mark.parametrize("is_saved", [False, True])
@pytest.mark.parametrize("way", ["closure", "record"])
@pytest.mark.parametrize("total_steps", [None, 20])  # one race, and too few steps for any
@pytest.mark.parametrize("place", ["write", "end_replays", "begin"])
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.filterwarnings("ignore:SelfTuner. 20 steps are too few")
def test_a_choice_that_is_interrupted_is_held_by_the_next_step(
    make_run, make_batches, bits, monkeypatch, is_saved, way, total_steps, place, is_done
):
    """Before or after each thing that is done to hold it; then go on, or save, load and go on."""
    make = functools.partial(make_run, way=way, around=0.1, total_steps=total_steps)
    batches = make_batches(130)

    def start():
        torch.manual_seed(0)
        return make()

    def train(step, number):
        torch.manual_seed(number)  # of the dropout
        step(*batches[number])

    def interrupted(function):
        def wrapper(*args):
            if is_done:
                function(*args)
            raise KeyboardInterrupt

        return wrapper

    plain_net, plain, plain_step = start()
    net, opt, step = start()
    last = 0
    train(plain_step, last)
    while plain.is_racing:
        train(step, last)
        last += 1
        train(plain_step, last)
    holders = {"write": opt._held, "end_replays": opt._intake, "begin": opt._guard}
    with monkeypatch.context() as patch:
        patch.setattr(holders[place], place, interrupted(getattr(holders[place], place)))
        with pytest.raises(KeyboardInterrupt):
            train(step, last)
    if is_saved:
        weights, state = copy.deepcopy((net.state_dict(), opt.state_dict()))
        net, opt, step = make()
        net.load_state_dict(weights)
        opt.load_state_dict(state)
    opt.zero_grad()
    if total_steps is not None:
        train(step, last)  # without a race it was a plain step, and was not made
    for number in range(last + 1, last + 13):
        train(step, number)
        train(plain_step, number)

    assert not opt.is_racing
    assert len(opt.races) == (total_steps is None)
    assert opt.races == plain.races
    assert opt._held.setting == plain._held.setting
    assert opt._guard.average.count > 0
    assert not opt._intake.recorder.remembers
    assert bits([[*net.parameters()]]) == bits([[*plain_net.parameters()]])
