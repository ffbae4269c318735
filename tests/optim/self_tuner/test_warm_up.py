"""After the race the run starts again at its first weights; its rate rises, holds and falls."""

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


@pytest.mark.parametrize(
    ("options", "warm_up"), [({}, 20), ({"length": None}, 50), ({"warmup": 4}, 4)]
)
def test_the_rate_rises_is_held_and_falls(options, warm_up, bits):
    """Over a twentieth, fifty steps or as many as are asked for; else it is the base."""
    run = Run(**options)
    began, chosen = run.race()
    run.steps(LENGTH)
    expected = []
    for step in range(began, LENGTH):
        falls = 1.0 if "length" in options else (LENGTH - step) / (LENGTH // 4)
        expected.append(chosen * min(1.0, (step - began + 1) / warm_up, falls))
    assert run.rates == pytest.approx(expected, rel=1e-12)

    base = adamw(run.first)
    for step, rate in enumerate(run.rates, start=began):
        base.param_groups[0]["lr"] = rate
        base.zero_grad()
        loss_of(run.first)(*run.batch(step)).backward()
        base.step()
    assert run.opt.races[-1].restarted
    assert bits(run.model.state_dict()) == bits(run.first.state_dict())
    assert bits(run.opt.base.state_dict()["state"]) == bits(base.state_dict()["state"])
