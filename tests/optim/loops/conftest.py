"""One loop, run four ways: raced, bare at one rate, with every step rejected, and without steps.

A test writes a loop as a user would, with `run.tuned` around the optimizer. Raced over an H of
rates, every arm must have the losses of the bare base at its rate, and the run must end where the
base ends at the rate that has won. With every step rejected, it must end where forward and backward
alone end. All of it bit for bit.
"""

import math
import random

import numpy as np
import pytest
import torch

from annealtune import EmbeddedTuner, SelfTuner, grid
from annealtune.annealing.race import LEAST_WINDOW
from annealtune.strategies import Strategy, Verdict
from tests.optim.conftest import _bits as bits

RATES = (1e-3, 4e-3, 1.6e-2)


class Bare:
    """The loop with the bare base, at one rate.

    Attributes:
        rate: what the loop gives its base.
        losses: of the minibatches that were stepped on.
        gradients: that each step has left.
    """

    steps = 44  # the longest race, and a few steps after it

    def __init__(self, *rates):
        self.rate, self.rates = rates[0], rates
        self.losses, self.gradients = [], []

    def tuned(self, base, model):
        """Return the optimizer that the loop uses."""
        self.base, self.model = base, model
        self.opt = self.around(base, model)
        return self.opt

    def around(self, base, model):
        return base

    def record(self, function, scaler=None):
        return function

    def before_step(self, function):
        return self.base.register_step_pre_hook(lambda *_: (function(), None)[1])

    def after_step(self, function):
        self.base.register_step_post_hook(lambda *_: function())

    def batches(self):
        """Yield the minibatches, the same in every run."""
        for number in range(self.steps):
            x = torch.randn(16, 6, generator=torch.Generator().manual_seed(number))
            yield x, x.sum(1, keepdim=True)

    def step(self, loss):
        self.opt.step()
        self.note(loss)

    def note(self, loss):
        self.losses.append(loss.item())
        self.gradients.append(bits([p.grad for p in self.model.parameters()]))

    def end(self):
        """Return everything that training changes."""
        return {
            "weights": bits(list(self.model.parameters())),
            "buffers": bits(dict(self.model.named_buffers())),
            "states": bits([getattr(m, "hidden", None) for m in self.model.modules()]),
            "state": bits(list(self.base.state_dict()["state"].items())),
            "random": bits(torch.get_rng_state()),
        }


class Raced(Bare):
    """The loop with a race of rates, whose winner's stretch is kept."""

    def around(self, base, model):
        return SelfTuner(base, model, neighborhood=grid(lr=self.rates), warmup=0)

    def record(self, function, scaler=None):
        return self.opt.record(function, scaler=scaler)

    def before_step(self, function):
        return self.opt.before_step(function)

    def after_step(self, function):
        self.opt.after_step(function)


class Never(Strategy):
    """Rejects every move."""

    def decide(self, value, new_value, rng):
        return Verdict.of(value, new_value, accepted=False)


class Rejected(Raced):
    """The loop with Algorithm 2, every step of which is made and undone."""

    steps = 5

    def around(self, base, model):
        return EmbeddedTuner(base, model, neighborhood=grid(lr=self.rates), strategy=Never())

    def note(self, loss):
        super().note(loss)
        assert self.opt.last_step.loss == loss.item()  # of this minibatch and no other


class Accepted(Rejected):
    """The loop with Algorithm 2, every step of which is kept."""

    def around(self, base, model):
        alone = grid(lr=self.rates[:1])
        return EmbeddedTuner(base, model, neighborhood=alone, temperature=math.inf)


class Brief(Bare):
    """The loop with the bare base, for a few steps."""

    steps = Rejected.steps


class Unmoved(Bare):
    """The loop with steps that do nothing but run their closure."""

    steps = Rejected.steps

    def around(self, base, model):
        base.step = lambda closure=None: None if closure is None else closure()
        return base


def ran(run, loop):
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - a loop may draw from it
    loop(run)
    return run, run.end()


@pytest.fixture(scope="session")
def assert_exact():
    """Race a loop over rates; compare every arm with the bare base at its rate."""

    def check(loop):
        raced, end = ran(Raced(*RATES), loop)
        assert not raced.opt.is_racing
        (race,) = raced.opt.races
        assert not race.restarted
        assert len({losses[:4] for losses in race.losses}) == len(RATES)  # the arms differ
        for arm in set(range(len(RATES))) - set(race.dropped):
            half = race.losses[arm][-max(LEAST_WINDOW, race.minibatches // 2) :]
            assert race.scores[arm] == math.fsum(half) / len(half)
        for rate, losses in zip(RATES, race.losses, strict=True):
            bare, bare_end = ran(Bare(rate), loop)
            assert list(losses) == bare.losses[: len(losses)], f"the arm with the rate {rate}"
            if rate == race.rate:
                assert raced.losses[race.minibatches :] == bare.losses[race.minibatches :]
                assert end == bare_end

    return check


@pytest.fixture(scope="session")
def assert_undone():
    """Reject every step of a loop, and accept it; compare with none, and with the bare base."""

    def check(loop):
        rejected, end = ran(Rejected(*RATES), loop)
        unmoved, unmoved_end = ran(Unmoved(*RATES), loop)
        assert rejected.opt.moves.total.tried == len(rejected.losses)
        assert rejected.losses == unmoved.losses
        assert rejected.gradients == unmoved.gradients
        assert end == unmoved_end
        accepted, end = ran(Accepted(*RATES), loop)
        bare, bare_end = ran(Brief(*RATES), loop)
        assert accepted.losses == bare.losses
        assert end == bare_end

    return check
