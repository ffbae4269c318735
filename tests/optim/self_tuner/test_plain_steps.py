"""Steps outside races: what they cost, and those without a loss; see also test_reference.py."""

import copy

import pytest
import torch

from annealtune import SelfTuner


@pytest.mark.parametrize("name", ["closure", "closure with backward", "record"])
def test_after_the_race_a_step_costs_one_forward(make_run, make_batches, race_through, kind, name):
    net, opt, step = make_run(kind, name, total_steps=1000)
    race_through(opt, step, make_batches(400))
    net.forwards = 0
    for x, y in make_batches(200, seed=2):
        step(x, y)
    assert net.forwards == 200
    assert not opt.history.events


def test_a_bare_step_is_one_of_the_base(
    make_net, make_base, make_batches, loss_function, race_through, trained
):
    net = make_net()
    opt = SelfTuner(make_base(net, "sgd"), net, total_steps=400)
    race_through(opt, lambda x, y: opt.step(lambda: loss_function(net)(x, y)), make_batches(200))
    twin, base = copy.deepcopy((net, opt.base))
    random_numbers = torch.get_rng_state()
    batches, rates = make_batches(7, seed=2), []  # fewer than it takes to miss the loss
    opt.zero_grad()
    for x, y in batches:
        rates.append(opt.lr)
        loss_function(net)(x, y).backward()
        assert opt.step() is None
        opt.zero_grad()
    found = trained(net, opt)
    torch.set_rng_state(random_numbers)
    for (x, y), rate in zip(batches, rates, strict=True):
        base.zero_grad()
        loss_function(twin)(x, y).backward()
        for group, ratio in zip(base.param_groups, (1.0, 0.01 / 0.1), strict=True):
            group["lr"] = rate * ratio
        base.step()
    assert found == trained(twin, base)


def test_a_race_draws_as_many_random_numbers_as_one_run():
    """Also where the number of draws depends on the weights, as in a forward that branches."""
    weight = torch.nn.Parameter(torch.ones(1))
    opt = SelfTuner(
        torch.optim.SGD([weight], lr=0.1), torch.nn.ParameterList([weight]), total_steps=200
    )
    start, steps = torch.get_rng_state(), 0
    while opt.is_racing:
        draws = iter([1, *range(2, 50)])  # the first evaluation is the run's own

        def closure(draws=draws):
            torch.rand(next(draws))
            return weight.square().sum()

        opt.step(closure)
        steps += 1
    found = torch.get_rng_state()
    torch.set_rng_state(start)
    for _ in range(steps):
        torch.rand(1)
    assert torch.equal(found, torch.get_rng_state())
