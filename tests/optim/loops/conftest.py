"""One loop, run four ways: raced, bare at one rate, with every step rejected, and without steps.

A test writes a loop as a user would, with `run.tuned` around the optimizer. Raced over an H of
rates, every arm must have the losses of the bare base at its rate, and the run must end where the
base ends at the rate that has won. With every step rejected, it must end where forward and backward
alone end. All of it bit for bit.
"""

import random

import numpy as np
import pytest
import torch

from annealtune import EmbeddedTuner, SelfTuner, grid
from annealtune.strategies import PlainStrategy, Verdict

STEPS = 44  # the longest race, and a few steps after it
RATES = (1e-3, 4e-3, 1.6e-2)


class Bare:
    """The loop with the bare base, at one rate.

    Attributes:
        rate: what the loop gives its base.
        losses: of the minibatches that were stepped on.
        gradients: that each step has left.
    """

    steps = STEPS

    def __init__(self, rate):
        self.rate = rate
        self.losses, self.gradients = [], []

    def tuned(self, base, model):
        """Return the optimizer that the loop uses."""
        self.base, self.model = base, model
        self.opt = self._around(base, model)
        return self.opt

    def _around(self, base, model):
        return base

    def record(self, function, scaler=None):
        return function

    def before_step(self, function):
        self.base.register_step_pre_hook(lambda *_: (function(), None)[1])

    def after_step(self, function):
        self.base.register_step_post_hook(lambda *_: function())

    def batches(self):
        """Yield the minibatches, the same in every run."""
        for number in range(self.steps):
            x = torch.randn(16, 6, generator=torch.Generator().manual_seed(number))
            yield x, x.sum(1, keepdim=True)

    def step(self, loss, *closure):
        """Note the loss and make a step."""
        self.opt.step(*closure)
        self.note(loss)

    def note(self, loss):
        self.losses.append(loss.item())
        self.gradients.append(_bits([p.grad for p in self.model.parameters()]))

    def end(self):
        """Return everything that training changes."""
        return {
            "weights": _bits(list(self.model.parameters())),
            "buffers": _bits(dict(self.model.named_buffers())),
            "state": _bits(list(self.base.state_dict()["state"].items())),
            "random": _bits(torch.get_rng_state()),
        }


class Raced(Bare):
    """The loop with a race of rates, whose winner's stretch is kept."""

    def __init__(self, rates):
        super().__init__(rates[0])
        self._rates = rates

    def _around(self, base, model):
        return SelfTuner(base, model, neighborhood=grid(lr=self._rates), warmup=0)

    def record(self, function, scaler=None):
        return self.opt.record(function, scaler=scaler)

    def before_step(self, function):
        self.opt.before_step(function)

    def after_step(self, function):
        self.opt.after_step(function)


class Never(PlainStrategy):
    """Rejects every move."""

    def decide(self, value, new_value, rng):
        return Verdict.of(value, new_value, accepted=False)


class Rejected(Raced):
    """The loop with Algorithm 2, every step of which is made and undone."""

    steps = 5

    def _around(self, base, model):
        return EmbeddedTuner(base, model, neighborhood=grid(lr=self._rates), strategy=Never())

    def note(self, loss):
        super().note(loss)
        assert self.opt.last_step.loss == loss.item()  # of this minibatch and no other


class Unmoved(Bare):
    """The loop with steps that do nothing but run their closure."""

    steps = Rejected.steps

    def _around(self, base, model):
        base.step = lambda closure=None: None if closure is None else closure()
        return base


def _bits(value):
    """Return something that is equal iff every bit of all tensors is equal."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        value = value.to_dense() if value.is_sparse else value
        flat = value.resolve_conj().contiguous().reshape(-1)
        return str(value.dtype), tuple(value.shape), flat.view(torch.uint8).numpy().tobytes()
    if isinstance(value, dict):
        return {key: _bits(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_bits(item) for item in value]
    return value


def _ran(run, loop):
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - a loop may draw from it
    loop(run)
    return run


@pytest.fixture(scope="session")
def assert_exact():
    """Race a loop over rates; compare every arm with the bare base at its rate."""

    def check(loop, rates=RATES):
        raced = _ran(Raced(rates), loop)
        end = raced.end()
        assert not raced.opt.is_racing
        (race,) = raced.opt.races
        assert not race.restarted
        assert len({losses[:4] for losses in race.losses}) == len(rates)  # the arms differ
        for setting, losses in zip(race.settings, race.losses, strict=True):
            bare = _ran(Bare(setting["lr"]), loop)
            assert list(losses) == bare.losses[: len(losses)], f"arm {setting}"
            if setting["lr"] == race.rate:
                assert raced.losses[race.minibatches :] == bare.losses[race.minibatches :]
                assert end == bare.end()
        return raced

    return check


@pytest.fixture(scope="session")
def assert_undone():
    """Reject every step of a loop; compare with forward and backward alone."""

    def check(loop, rates=RATES):
        rejected = _ran(Rejected(rates), loop)
        end = rejected.end()
        unmoved = _ran(Unmoved(rates[0]), loop)
        assert rejected.opt.moves.total.tried == len(rejected.losses)
        assert rejected.losses == unmoved.losses
        assert rejected.gradients == unmoved.gradients
        assert end == unmoved.end()

    return check
