"""What races cost, counted by a hook on the base's own step."""

import pytest
import torch
from torch import nn

from annealtune import SelfTuner, grid
from tests.optim.self_tuner.classification import adamw, train


def counted_run(total_steps, *, made=None, base=torch.optim.AdamW, **settings):
    """Train three weights; return the tuner and how many steps its base has made."""
    targets = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    weight = nn.Parameter(torch.zeros(3))
    model = nn.ParameterList([weight])
    optimizer = SelfTuner(base([weight], lr=0.1), model, total_steps=total_steps, **settings)
    steps = []
    optimizer.base.register_step_post_hook(lambda *_: steps.append(optimizer.steps))
    compute_loss = optimizer.record(lambda target: (weight - target).square().sum())
    for step in range(made or total_steps):
        optimizer.zero_grad()
        compute_loss(targets[step % 64]).backward()
        optimizer.step()
    return optimizer, steps


def share(total_steps):
    """The part of a run that its races may cost, with the patience of a plateau."""
    return 0.06 if total_steps >= 2000 else 0.13


@pytest.mark.parametrize(
    "total_steps", [100, 500, 2000, pytest.param(20_000, marks=pytest.mark.slow)]
)
@pytest.mark.filterwarnings("ignore:.*too few for a race")
def test_the_base_makes_the_planned_steps_and_the_extra_ones(total_steps):
    optimizer, steps = counted_run(total_steps)
    assert len(steps) == total_steps + optimizer.extra_steps
    assert optimizer.extra_steps == sum(race.extra_steps for race in optimizer.races)
    assert optimizer.extra_steps <= share(total_steps) * total_steps
    assert not optimizer.is_racing
    assert bool(optimizer.races) == (total_steps > 100)
    # Outside races every call makes exactly one step.
    over = max((race.step + race.minibatches for race in optimizer.races), default=0)
    assert [step for step in steps if step >= over] == list(range(over, total_steps))


@pytest.mark.parametrize(("total_steps", "share"), [(1000, 0.04), (10_000, 0.01)])
def test_a_net_that_learns_pays_a_few_per_cent(total_steps, share):
    for seed in range(3):
        optimizer = train(adamw, steps=total_steps, made=60, seed=seed).optimizer
        assert not optimizer.is_racing
        assert 0 < optimizer.extra_steps <= share * total_steps


def test_on_a_plateau_the_arms_race_on_for_up_to_twice_as_much():
    """The loss follows the last digits of the weights: there is nothing to learn."""
    for seed in range(5):
        torch.manual_seed(seed)
        weight = nn.Parameter(torch.randn(4))
        base = torch.optim.AdamW([weight])
        optimizer = SelfTuner(base, nn.ParameterList([weight]), total_steps=1000)
        while not optimizer.races:
            optimizer.step(lambda: torch.sin(1e6 * weight.sum()))  # noqa: B023
        assert 0.04 * 1000 < optimizer.races[0].extra_steps <= 0.08 * 1000


@pytest.mark.parametrize(
    ("total_steps", "settings"),
    [
        (None, {}),
        (500, {"base": torch.optim.SGD}),  # whose trial steps call nothing of the user
        (500, {"neighborhood": grid(lr=[0.001, 0.1], betas=[(0.9, 0.999), (0.5, 0.9)])}),
    ],
)
def test_so_it_is_without_a_length_and_with_an_h(total_steps, settings):
    optimizer, steps = counted_run(total_steps, made=500, **settings)
    assert len(steps) == 500 + optimizer.extra_steps
    assert 0 < optimizer.extra_steps <= (80 if total_steps is None else share(500) * 500)


def test_a_run_too_short_says_so_and_is_the_base_at_the_centre_until_the_rate_falls():
    with pytest.warns(UserWarning, match="too few") as said:
        optimizer, steps = counted_run(20, made=10, around=0.02, warmup=0)
    assert len(said) == 1
    assert said[0].filename == __file__
    assert steps == list(range(10))
    assert optimizer.races == ()
    weight = nn.Parameter(torch.zeros(3))
    plain = torch.optim.AdamW([weight], lr=0.02)
    targets = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    for step in range(10):
        plain.zero_grad()
        (weight - targets[step]).square().sum().backward()
        plain.step()
    assert torch.equal(optimizer.param_groups[0]["params"][0], weight)
    with pytest.warns(UserWarning, match="too few"):
        optimizer, steps = counted_run(1)  # one step is a run
    assert steps == [0]
    assert optimizer.param_groups[0]["params"][0].abs().min() > 0


def test_past_the_end_there_is_one_warning_and_the_rate_stays():
    rates = []
    for made in (205, 230):
        with pytest.warns(UserWarning, match="total_steps") as said:
            optimizer, steps = counted_run(200, made=made)
        assert len(said) == 1
        assert len(steps) == made + optimizer.extra_steps
        rates.append(optimizer.lr)
    assert 0 < rates[0] == rates[1] == optimizer.param_groups[0]["lr"]
