"""What races cost, counted by a hook on the base's own step."""

import pytest
import torch
from torch import nn

from annealtune import grid
from annealtune.annealing.race import PATIENCE, allowance
from annealtune.optim.self_tuner import SelfTuner
from tests.optim.self_tuner.classification import adamw, train


def counted_run(total_steps, *, made=None, base=torch.optim.AdamW, **settings):
    """Train three weights; return the tuner and how many steps its base has made."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randn(64, 3, generator=generator)
    weight = nn.Parameter(torch.zeros(3))
    optimizer = SelfTuner(base([weight], lr=0.1), total_steps=total_steps, **settings)
    steps = []
    optimizer.base.register_step_post_hook(lambda *_: steps.append(optimizer.steps))
    compute_loss = optimizer.record(lambda target: (weight - target).square().sum())
    for step in range(made or total_steps):
        optimizer.zero_grad()
        compute_loss(targets[step % 64]).backward()
        optimizer.step()
    return optimizer, steps


def most(total_steps, race):
    """What a race may cost, with the patience of a plateau."""
    return PATIENCE * allowance(total_steps, is_further=race.number > 1).extra_steps


@pytest.mark.parametrize("total_steps", [100, 500, 2000, 20_000])
@pytest.mark.filterwarnings("ignore:.*too few for a race")
def test_the_base_makes_the_planned_steps_and_the_extra_ones(total_steps):
    # In the largest runs what follows the races adds one step a call: the races alone are run.
    made = min(total_steps, 3000)
    optimizer, steps = counted_run(total_steps, made=made)

    assert len(steps) == made + optimizer.extra_steps
    assert all(race.extra_steps <= most(total_steps, race) for race in optimizer.races)
    assert optimizer.extra_steps == sum(race.extra_steps for race in optimizer.races)
    assert not optimizer.is_racing
    assert bool(optimizer.races) == allowance(total_steps).fits(3)
    # Outside races every call makes exactly one step.
    over = max((race.step + race.minibatches for race in optimizer.races), default=0)
    assert [step for step in steps if step >= over] == list(range(over, made))


@pytest.mark.slow
def test_a_whole_run_of_twenty_thousand_steps():
    optimizer, steps = counted_run(20_000)

    assert len(steps) == 20_000 + optimizer.extra_steps
    assert all(race.extra_steps <= most(20_000, race) for race in optimizer.races)


@pytest.mark.parametrize(("total_steps", "share"), [(1000, 0.04), (10_000, 0.01)])
def test_a_net_that_learns_pays_a_few_per_cent(total_steps, share):
    for seed in range(3):
        optimizer = train(adamw, steps=total_steps, made=60, seed=seed).optimizer
        assert not optimizer.is_racing
        assert 0 < optimizer.extra_steps <= share * total_steps


def test_on_a_plateau_the_arms_race_on_for_up_to_twice_as_much():
    """The loss follows the last digits of the weights: there is nothing to learn."""
    budget = allowance(1000).extra_steps
    for seed in range(5):
        torch.manual_seed(seed)
        weight = nn.Parameter(torch.randn(4))
        optimizer = SelfTuner(torch.optim.AdamW([weight]), total_steps=1000)
        while not optimizer.races:
            optimizer.step(lambda: torch.sin(1e6 * weight.sum()))  # noqa: B023
        assert budget < optimizer.races[0].extra_steps <= 2 * budget


def test_a_given_rate_costs_no_trial_steps_over_sgd():
    optimizer, steps = counted_run(500, base=torch.optim.SGD, around=0.01)

    assert len(steps) == 500 + optimizer.extra_steps


def test_without_one_a_few_trial_steps_are_made_before_the_race():
    optimizer, steps = counted_run(500, base=torch.optim.SGD)

    trials = len(steps) - 500 - optimizer.extra_steps
    assert trials in range(30, 12 * 30 + 1, 30)
    assert steps[:trials] == [0] * trials


def test_without_a_length_the_budget_is_that_of_a_run_of_some_length():
    optimizer, steps = counted_run(None, made=600)

    assert len(steps) == 600 + optimizer.extra_steps
    assert optimizer.races
    assert all(race.extra_steps <= most(None, race) for race in optimizer.races)


def test_a_neighborhood_keeps_to_the_same_budget():
    optimizer, steps = counted_run(
        500,
        neighborhood=grid(lr=[0.001, 0.1], betas=[(0.9, 0.999), (0.5, 0.9)]),
    )

    assert len(steps) == 500 + optimizer.extra_steps
    assert 0 < optimizer.extra_steps <= most(500, optimizer.races[0])


class TestARunTooShort:
    def test_it_says_so_and_holds_the_centre(self):
        with pytest.warns(UserWarning, match=r"20 steps are too few for a race.*around") as said:
            optimizer, steps = counted_run(20)

        assert len(said) == 1
        assert said[0].filename == __file__
        assert steps == list(range(20))
        assert optimizer.races == ()
        assert optimizer.extra_steps == 0

    def test_it_is_the_base_bit_for_bit_until_the_rate_falls(self):
        with pytest.warns(UserWarning, match="too few"):
            optimizer, _ = counted_run(20, made=10, around=0.02, warmup=0)

        weight = nn.Parameter(torch.zeros(3))
        plain = torch.optim.AdamW([weight], lr=0.02)
        targets = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
        for step in range(10):
            plain.zero_grad()
            (weight - targets[step]).square().sum().backward()
            plain.step()
        assert torch.equal(optimizer.param_groups[0]["params"][0], weight)

    def test_one_step_is_a_run(self):
        with pytest.warns(UserWarning, match="1 steps are too few"):
            optimizer, steps = counted_run(1)

        assert steps == [0]
        assert optimizer.param_groups[0]["params"][0].abs().min() > 0


class TestPastTheEnd:
    def test_one_warning_and_the_rate_stays(self):
        with pytest.warns(UserWarning, match="200 steps were planned and more are made") as said:
            optimizer, steps = counted_run(200, made=230)

        assert len(said) == 1
        assert len(steps) == 230 + optimizer.extra_steps
        assert 0 < optimizer.lr == optimizer.param_groups[0]["lr"]

        with pytest.warns(UserWarning, match="were planned"):
            shorter, _ = counted_run(200, made=205)
        assert shorter.lr == optimizer.lr
