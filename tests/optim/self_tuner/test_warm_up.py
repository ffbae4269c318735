"""After the race the run starts again at its first weights, and its rate rises."""

import copy

import pytest
import torch

from annealtune import SelfTuner
from tests.optim.self_tuner.classification import adamw, make_task

LENGTH = 400


class Run:
    """A run over AdamW that notes its minibatches and the rate that each of its steps is made with.

    Args:
        length: planned steps, or None.
        options: of the SelfTuner.
    """

    def __init__(self, length=LENGTH, **options):
        self.model, self._inputs, self._classes = make_task()
        self.first = copy.deepcopy(self.model)
        self.opt = SelfTuner(adamw(self.model), model=self.model, total_steps=length, **options)
        self.rates = []
        self.opt.base.register_step_post_hook(
            lambda base, *_: self.rates.append(base.param_groups[0]["lr"])
        )

    def batch(self, step):
        rows = torch.arange(32 * step, 32 * step + 32) % len(self._inputs)
        return self._inputs[rows], self._classes[rows]

    def steps(self, last):
        """Go on to a step."""
        compute_loss = self.opt.record(loss_of(self.model))
        for step in range(self.opt.steps, last):
            compute_loss(*self.batch(step)).backward()
            self.opt.step()
            self.opt.zero_grad()

    def race(self):
        """Race to the end; return how many steps that took, and the rate that was chosen."""
        while self.opt.is_racing:
            self.steps(self.opt.steps + 1)
        self.rates.clear()
        return self.opt.steps, self.opt.races[-1].rate


def loss_of(model):
    return lambda x, y: torch.nn.functional.cross_entropy(model(x), y)


def test_the_rate_rises_over_a_twentieth_of_the_run_is_held_and_falls():
    run = Run()
    began, chosen = run.race()
    run.steps(LENGTH)

    rises = [chosen * (step + 1) / 20 for step in range(20)]
    held = [chosen] * (LENGTH * 3 // 4 - began - 20)
    falls = [chosen * (LENGTH - step) / (LENGTH // 4) for step in range(LENGTH * 3 // 4, LENGTH)]
    assert run.rates == pytest.approx([*rises, *held, *falls], rel=1e-12)


def test_it_is_the_base_from_the_first_weights_at_these_rates_bit_for_bit(bits):
    run = Run()
    began, _ = run.race()
    run.steps(LENGTH)

    base = adamw(run.first)
    for step, rate in enumerate(run.rates, start=began):
        base.param_groups[0]["lr"] = rate
        base.zero_grad()
        loss_of(run.first)(*run.batch(step)).backward()
        base.step()
    assert run.opt.races[-1].restarted
    assert bits(run.model.state_dict()) == bits(run.first.state_dict())
    assert bits(run.opt.base.state_dict()["state"]) == bits(base.state_dict()["state"])


def test_without_a_length_it_takes_fifty_steps():
    run = Run(length=None)
    began, chosen = run.race()
    run.steps(began + 60)

    rises = [chosen * (step + 1) / 50 for step in range(50)]
    assert run.rates == pytest.approx([*rises, *[chosen] * 10], rel=1e-12)


def test_a_number_of_steps_is_obeyed():
    run = Run(warmup=4)
    began, chosen = run.race()
    run.steps(began + 6)

    expected = [chosen * share for share in (0.25, 0.5, 0.75, 1, 1, 1)]
    assert run.rates == pytest.approx(expected, rel=1e-12)


def test_switched_off_the_winner_goes_on_from_where_it_is(bits):
    run = Run(warmup=0)
    began, chosen = run.race()
    run.steps(began + 10)

    assert run.rates == [chosen] * 10
    (race,) = run.opt.races
    assert not race.restarted
    base = adamw(run.first, lr=chosen)
    for step in range(began + 10):
        base.zero_grad()
        loss_of(run.first)(*run.batch(step)).backward()
        base.step()
    assert bits(run.model.state_dict()) == bits(run.first.state_dict())


def test_saved_and_loaded_in_the_middle_of_it_is_the_same_run(bits):
    whole = Run()
    began, _ = whole.race()
    whole.steps(began + 7)
    saved = copy.deepcopy((whole.model.state_dict(), whole.opt.state_dict()))
    whole.rates.clear()
    whole.steps(LENGTH)

    loaded = Run()
    loaded.model.load_state_dict(saved[0])
    loaded.opt.load_state_dict(saved[1])
    loaded.steps(LENGTH)
    assert loaded.rates == whole.rates
    assert bits(loaded.model.state_dict()) == bits(whole.model.state_dict())
    assert bits(loaded.opt.state_dict()) == bits(whole.opt.state_dict())
