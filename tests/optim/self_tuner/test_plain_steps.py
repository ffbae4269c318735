"""Outside races a step is one of the base, bit for bit, and costs one forward."""

import pytest
import torch

from annealtune import SelfTuner

AFTER = 200


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("sgd", "closure"),
        ("adamw", "closure with backward"),
        ("adamw", "record"),
    ],
)
def test_after_the_race_the_run_is_the_base_at_the_rates_it_announces(
    make_run, make_batches, race_through, plain_steps, trained, twins, kind, way
):
    net, opt, step = make_run(kind, way, total_steps=1000)
    race_through(opt, step, make_batches(400))
    twin, base = twins(net, opt.base)
    random_numbers = torch.get_rng_state()
    net.forwards = twin.forwards = 0
    batches, rates = make_batches(AFTER, seed=2), []
    for x, y in batches:
        rates.append(opt.lr)
        step(x, y)
    found = trained(net, opt)

    torch.set_rng_state(random_numbers)
    plain_steps(twin, base, batches, rates)
    assert found == trained(twin, base)
    assert net.forwards == twin.forwards == AFTER
    assert not [event for event in opt.history.events if "race" not in event.text]


def test_it_is_so_with_a_bare_step(
    make_net, make_base, make_batches, loss_function, race_through, plain_steps, trained, twins
):
    net = make_net()
    opt = SelfTuner(make_base(net, "sgd"), net, total_steps=400)
    race_through(opt, lambda x, y: opt.step(lambda: loss_function(net)(x, y)), make_batches(200))
    twin, base = twins(net, opt.base)
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
    plain_steps(twin, base, batches, rates)
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
