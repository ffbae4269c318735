"""The guard brings a run back that is no longer finite, and leaves every other one alone.

Where it acts it warns, and a warning that a test does not expect is an error.
"""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import NonFiniteLossError, SelfTuner
from tests.optim.self_tuner.classification import BASES, Remembering, adamw, make_task, train

EARLY, LATE = 60, 300  # both after the race: a few sound looks, and many


def nan_from(first, last=None):
    """Make the losses of some steps NaN, by default that of one."""
    last = first if last is None else last
    return lambda loss, step: loss * (math.nan if first <= step <= last else 1.0)


class Bowl:
    """A noisy bowl over SGD that gets steeper at step 200, so that the weights grow to infinity."""

    def __init__(self, steep=100.0, **options):
        self.weight = nn.Parameter(torch.tensor([3.0, -2.0]))
        base = torch.optim.SGD([self.weight], lr=0.1)
        self.opt = SelfTuner(base, nn.ParameterList([self.weight]), around=0.03, **options)
        self.rates, self.states = [], []
        self._steep = steep
        self._targets = 0.1 * torch.randn(600, 2, generator=torch.Generator().manual_seed(0))

    def loss(self, step):
        curvature = self._steep if step >= 200 else 1.0
        return 0.5 * curvature * (self.weight - self._targets[step]).square().sum()

    def train(self, last, save_at=()):
        """Go on to a step; note the rates, and the whole run at some steps."""
        compute_loss = self.opt.record(self.loss)
        for step in range(self.opt.steps, last):
            if step in save_at:
                state = copy.deepcopy(self.opt.state_dict())
                self.states.append((step, self.weight.detach().clone(), state))
            self.opt.zero_grad()
            compute_loss(step).backward()
            self.opt.step()
            self.rates.append(self.opt.param_groups[0]["lr"])
        return self


class TestAnExplosion:
    def test_the_run_goes_back_with_a_quarter_of_the_rate_and_ends_well(self):
        with pytest.warns(UserWarning, match="broke") as said:
            run = Bowl().train(600)
        assert run.weight.abs().max() < 0.5
        held, *cut = dict.fromkeys(run.rates[199:])
        assert cut == [held / 4, held / 16]
        assert len(said) == 3  # the first one is put down to the data and cuts nothing
        assert {warning.filename for warning in said} == {__file__}  # they point to the caller
        assert run.opt.races[-1].rate == run.opt.lr == run.rates[-1]

    def test_the_rate_is_cut_twice_at_the_most(self):
        run = Bowl(steep=1e6)
        with pytest.warns(UserWarning, match="broke"), pytest.raises(NonFiniteLossError):
            run.train(600)
        assert min(run.rates[199:]) == run.rates[199] / 16

    @pytest.mark.filterwarnings("ignore:SelfTuner")
    def test_saved_and_loaded_around_a_return_it_is_the_same_run(self, bits):
        whole = Bowl().train(300, save_at=range(199, 240, 3))
        assert whole.opt.lr < whole.rates[199]
        for step, weight, state in whole.states:
            loaded = Bowl()
            loaded.weight.data.copy_(weight)
            loaded.opt.load_state_dict(state)
            loaded.train(300)
            assert loaded.rates == whole.rates[step:]
            assert torch.equal(loaded.weight, whole.weight)
            assert bits(loaded.opt.state_dict()) == bits(whole.opt.state_dict())


class TestNaN:
    @pytest.mark.parametrize("base", BASES)
    @pytest.mark.parametrize(("place", "left"), [(EARLY, 0.25), (LATE, 1.0)])
    def test_only_an_early_one_says_something_of_the_rate(self, base, place, left):
        with pytest.warns(UserWarning, match=r"around=.*guard=False") as said:
            run = train(base, nan_from(place), steps=500)
        assert len(said) == 1
        assert run.last < 0.15 * run.first
        rate = run.optimizer.races[-1].rate
        assert rate == left * train(base, steps=500, made=EARLY).optimizer.races[-1].rate
        assert run.optimizer.lr == pytest.approx(rate / 125)  # the last one of the plan

    @pytest.mark.parametrize("kind", [torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.ASGD])
    def test_every_base_goes_on_without_its_state(self, kind):
        with pytest.warns(UserWarning, match="broke"):
            run = train(lambda model: kind(model.parameters()), nan_from(120), around=0.01)
        assert run.last < run.first

    def test_one_that_stays_ends_with_an_error(self):
        with pytest.warns(UserWarning, match="broke"), pytest.raises(NonFiniteLossError):
            train(adamw, nan_from(150, 500), steps=500)

    def test_an_option_set_by_hand_survives(self):
        bases = []

        def base(model):
            bases.append(adamw(model))
            return bases[0]

        def change(loss, step):
            if step == 200:
                bases[0].param_groups[0]["weight_decay"] = 0.5
            return nan_from(LATE)(loss, step)

        with pytest.warns(UserWarning, match="broke"):
            train(base, change)
        assert bases[0].param_groups[0]["weight_decay"] == 0.5

    def test_without_the_guard_it_is_an_error(self):
        run = Bowl(guard=False).train(210)
        assert run.weight.abs().max() > 1e3
        assert len(set(run.rates[100:])) == 1
        with pytest.raises(NonFiniteLossError, match="guard=False"):
            train(adamw, nan_from(LATE), steps=500, guard=False)


def growing_returns():
    """A value function whose targets grow, as returns do."""
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def compute_loss(step):
        x = torch.randn(128, 4)
        returns = (1 + step / 60) * (x.sum(1, keepdim=True) + torch.randn(128, 1))
        return F.mse_loss(model(x), returns)

    return model, compute_loss


def one_task_after_another():
    """Classes that are named anew every 200 steps."""
    model, inputs, classes = make_task()

    def compute_loss(step):
        rows = torch.randint(len(inputs), (64,))
        return F.cross_entropy(model(inputs[rows]), (classes[rows] + step // 200) % 3)

    return model, compute_loss


@pytest.mark.parametrize("make", [growing_returns, one_task_after_another])
def test_a_loss_that_rises_is_left_alone(make):
    torch.manual_seed(0)
    model, compute_loss = make()
    opt = SelfTuner(adamw(model), model, total_steps=900)
    recorded = opt.record(compute_loss)
    for step in range(900):
        if step == 300:
            rate = opt.races[-1].rate
            opt.param_groups[0]["weight_decay"] = 0.5
        recorded(step).backward()
        opt.step()
        opt.zero_grad()
    losses = [point.loss for point in opt.history.points]
    assert max(losses[20:]) > 2 * min(losses[:20])  # it did rise
    assert not opt.history.events
    assert opt.races[-1].rate == rate
    assert opt.param_groups[0]["weight_decay"] == 0.5


@pytest.mark.parametrize("kind", ["attribute", "frozen parameter"])
def test_what_a_forward_keeps_outside_the_weights_comes_back_too(kind):
    """Else the NaN of one minibatch would stay in it for ever."""
    torch.manual_seed(0)
    model = Remembering(kind)
    base = torch.optim.SGD(model.layer.parameters(), lr=0.1)
    opt = SelfTuner(base, model, total_steps=300, around=0.01)
    compute_loss = opt.record(lambda x: (model(x) - 1).square().mean())

    def train_over_one_broken_minibatch():
        for step in range(300):
            x = torch.randn(8, 2) * (math.nan if step == 150 else 1.0)
            compute_loss(x).backward()
            opt.step()
            opt.zero_grad()

    with pytest.warns(UserWarning, match="back to the averaged weights") as said:
        train_over_one_broken_minibatch()
    assert len(said) == 1
    assert model.mean.isfinite().all()


def test_the_first_weights_are_the_safe_ones_of_a_run_too_short_for_a_race():
    model, x = nn.Linear(6, 1), torch.randn(16, 6)
    base = torch.optim.SGD(model.parameters(), lr=1.0)
    opt = SelfTuner(base, model, total_steps=100, around=1e12)
    first = model.weight.detach().clone()

    def step_until_it_breaks():
        while not any("averaged weights" in event.text for event in opt.history.events):
            opt.step(lambda: F.mse_loss(model(x), x.sum(1, keepdim=True)))

    with pytest.warns(UserWarning, match=r"too few for a race|back to the averaged weights"):
        step_until_it_breaks()
    assert torch.equal(model.weight, first)
    assert opt.lr == pytest.approx(0.25e12)
