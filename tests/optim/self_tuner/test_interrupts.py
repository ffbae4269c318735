"""A race that is interrupted can be saved, copied and continued; no arm is mixed up."""

import copy
import io
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import SelfTuner, grid
from tests.optim.interrupter import Interrupter
from tests.optim.self_tuner.classification import make_task

RATES = [0.01, 0.011, 0.012]  # so near each other that none is dropped


class Loop:
    """A run on one minibatch, so that every arm has its own, known sequence of losses."""

    def __init__(self, **settings):
        model, self.inputs, self.classes = make_task()
        self.model = nn.Sequential(nn.BatchNorm1d(6), *model)
        base = torch.optim.AdamW(self.model.parameters())
        self.optimizer = SelfTuner(base, self.model, total_steps=300, **settings)

    def loss(self):
        return F.cross_entropy(self.model(self.inputs[:64]), self.classes[:64])

    def steps(self, count):
        for _ in range(count):
            self.optimizer.step(self.loss)
        return self

    def race(self):
        while self.optimizer.is_racing:
            self.steps(1)
        return self


def losses_of(rate, count):
    """What the base computes by itself at a rate."""
    loop = Loop()
    base = torch.optim.AdamW(loop.model.parameters(), lr=rate)
    losses = []
    for _ in range(count):
        base.zero_grad()
        loss = loop.loss()
        loss.backward()
        base.step()
        losses.append(loss.item())
    return losses


def check_that_it_can_be_saved_and_copied(loop):
    file = io.BytesIO()
    torch.save(loop.optimizer.state_dict(), file)
    file.seek(0)
    torch.load(file, weights_only=True)
    copy.deepcopy(loop).steps(1)


def check_every_line(after, *, stride):
    start = Loop(neighborhood=grid(lr=RATES)).steps(after)
    whole, copied = Interrupter(), copy.deepcopy(start)
    assert not whole.run(lambda: copied.steps(1))
    known = [losses_of(rate, 40) for rate in RATES]
    for number in range(1, len(whole.seen) + 1, stride):
        loop = copy.deepcopy(start)
        interrupter = Interrupter(number)
        assert interrupter.run(lambda: loop.steps(1))  # noqa: B023
        check_that_it_can_be_saved_and_copied(loop)
        (race,) = loop.race().optimizer.races
        for arm, losses in enumerate(race.losses):
            # Each loss is one of its own, in order; the interrupted one may be there twice, or not.
            places = [known[arm].index(loss) for loss in losses]
            ahead = [b - a for a, b in itertools.pairwise(places)]
            assert set(ahead) <= {0, 1, 2}, f"{interrupter.where}: arm {arm} is mixed up"
            assert ahead.count(1) >= len(ahead) - 1, interrupter.where
        loop.steps(10)


@pytest.mark.parametrize("after", [1, 2])
def test_no_line_leaves_an_arm_mixed_up(after):
    check_every_line(after, stride=97)


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 6])
def test_truly_no_line_leaves_an_arm_mixed_up(after):
    check_every_line(after, stride=1)


def test_the_end_of_a_race_can_be_interrupted(bits):
    """However it is interrupted, its choice is held, and saved with the run."""
    start = Loop(neighborhood=grid(lr=RATES), warmup=0)
    while (last := copy.deepcopy(start).steps(1)).optimizer.is_racing:
        start = last
    whole, copied = Interrupter(), copy.deepcopy(start)
    assert not whole.run(lambda: copied.steps(1))
    for number in range(1, len(whole.seen) + 1, 101):
        loop = copy.deepcopy(start)
        interrupter = Interrupter(number)
        assert interrupter.run(lambda: loop.steps(1))  # noqa: B023
        check_that_it_can_be_saved_and_copied(loop)
        loaded = Loop(neighborhood=grid(lr=RATES), warmup=0)
        loaded.model.load_state_dict(loop.model.state_dict())
        loaded.optimizer.load_state_dict(copy.deepcopy(loop.optimizer.state_dict()))
        for each in (loop, loaded):
            (race,) = each.race().steps(10).optimizer.races
            assert each.optimizer.lr == RATES[race.winner], interrupter.where
        assert bits(loaded.model.state_dict()) == bits(loop.model.state_dict()), interrupter.where


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
    model = nn.ParameterList([weight])
    opt = SelfTuner(Failing([weight], lr=0.1), model, neighborhood=grid(lr=[0.1, 0.05, 0.02]))
    opt.step(lambda: weight.square().sum())
    with pytest.raises(MemoryError):
        opt.step(lambda: weight.square().sum())
    while opt.is_racing:
        opt.step(lambda: weight.square().sum())
    (info,) = opt.races
    torn = [arm for arm, why in info.dropped.items() if "interrupted" in why]
    assert len(torn) == 1
    assert info.winner not in torn
