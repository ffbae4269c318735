"""The guard brings a run back that breaks, and leaves one alone that is only noisy.

Where it acts it warns, and a warning that a test does not expect is an error.
"""

import copy
import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import NonFiniteLossError, SelfTuner
from tests.optim.self_tuner.classification import BASES, adamw, make_task, sgd, train


def nan_at(place):
    return lambda loss, step: loss * (math.nan if step == place else 1.0)


class Bowl:
    """A noisy bowl over SGD that gets steeper at step 200, so that the rate is too large.

    Args:
        way: how the tuner learns of a minibatch.
        steep: how much steeper.
    """

    def __init__(self, way="record", steep=100.0, **options):
        self.weight = nn.Parameter(torch.tensor([3.0, -2.0]))
        base = torch.optim.SGD([self.weight], lr=0.1)
        self.opt = SelfTuner(base, nn.ParameterList([self.weight]), around=0.1, **options)
        self.rates, self.states = [], []
        self._steep, self._recorded = steep, way == "record"
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
            if self._recorded:
                self.opt.zero_grad()
                compute_loss(step).backward()
                self.opt.step()
            else:
                self.opt.step(lambda: self.loss(step))  # noqa: B023
            self.rates.append(self.opt.param_groups[0]["lr"])
        return self


class TestARateThatBreaksLater:
    def test_the_run_goes_back_with_a_quarter_of_the_rate_and_ends_well(self):
        with pytest.warns(UserWarning, match="broke") as said:
            run = Bowl().train(600)

        assert run.weight.abs().max() < 0.5
        held, *cut = dict.fromkeys(run.rates[199:])
        assert cut == pytest.approx([held / 4**cuts for cuts in range(1, len(cut) + 1)])
        assert 1 <= len(cut) <= 2
        # A first loss that is not finite is put down to the data: it cuts nothing.
        assert len(cut) <= len(said) <= len(cut) + 1
        assert {warning.filename for warning in said} == {__file__}  # they point to the caller
        assert run.opt.races[-1].rate == run.opt.lr == run.rates[-1]

    def test_it_is_cut_twice_at_the_most(self):
        with pytest.warns(UserWarning, match="broke"), pytest.raises(NonFiniteLossError):
            Bowl(steep=1e6).train(600)

    @pytest.mark.parametrize("way", ["closure", "record"])
    @pytest.mark.filterwarnings("ignore:SelfTuner")
    def test_saved_and_loaded_while_in_doubt_it_is_the_same_run(self, way, bits):
        whole = Bowl(way).train(300, save_at=range(199, 230, 3))
        for step, weight, state in whole.states:
            loaded = Bowl(way)
            loaded.weight.data.copy_(weight)
            loaded.opt.load_state_dict(state)
            loaded.train(300)
            assert loaded.rates == whole.rates[step:]
            assert torch.equal(loaded.weight, whole.weight)
            assert bits(loaded.opt.state_dict()) == bits(whole.opt.state_dict())

    @pytest.mark.parametrize("base", BASES)
    def test_weights_that_turn_to_nan_are_brought_back(self, base):
        with pytest.warns(UserWarning, match="broke") as said:
            run = train(base, nan_at(300), steps=500)
        assert len(said) == 1
        assert run.last < 0.15 * run.first
        # One broken minibatch says nothing of the rate: it is the last one of the plan.
        assert run.optimizer.lr == pytest.approx(run.optimizer.races[-1].rate / 125)
        assert all(bool(p.isfinite().all()) for p in run.model.parameters())

    @pytest.mark.parametrize("kind", [torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.ASGD])
    def test_every_base_goes_on_without_its_state(self, kind):
        with pytest.warns(UserWarning, match="broke"):
            run = train(
                lambda model: kind(model.parameters(), lr=0.01),
                nan_at(120),
                steps=220,
                around=0.01,
            )
        assert run.moved
        assert run.last < run.first

    def test_a_loss_that_stays_broken_ends_with_an_error(self):
        with pytest.warns(UserWarning, match="broke"), pytest.raises(NonFiniteLossError):
            train(adamw, lambda loss, step: loss * (math.nan if step >= 150 else 1.0), steps=500)


class TestHealthyRuns:
    @pytest.mark.parametrize("base", BASES)
    def test_noisy_runs_are_left_alone(self, base):
        for seed in range(5):
            assert train(base, steps=210, batch=2, seed=seed).moved

    @pytest.mark.slow
    def test_a_long_run_with_batches_of_one_is_left_alone(self):
        assert train(sgd, steps=2000, batch=1, seed=2).moved

    @pytest.mark.parametrize("base", BASES)
    def test_a_rare_loss_of_another_size_breaks_nothing(self, base):
        run = train(base, lambda loss, step: loss + (100.0 if step % 30 == 7 else 0.0))
        assert run.last < 0.2 * run.first

    def test_a_loss_that_rises_with_its_targets_is_left_alone(self):
        """As the loss of a value function does while returns grow."""
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
        optimizer = SelfTuner(torch.optim.Adam(model.parameters()), model, total_steps=900)
        compute_loss = optimizer.record(lambda x, y: F.mse_loss(model(x), y))
        for step in range(900):
            x = torch.randn(128, 4)
            returns = (1 + step / 60) * (x.sum(1, keepdim=True) + torch.randn(128, 1))
            compute_loss(x, returns).backward()
            optimizer.step()
            optimizer.zero_grad()

    def test_so_is_a_net_that_learns_one_task_after_another(self):
        def steps(optimizer, compute_loss, count):
            for step in range(count):
                rows = torch.randint(len(inputs), (64,))
                compute_loss(inputs[rows], (classes[rows] + step // 300) % 3).backward()
                optimizer.step()
                optimizer.zero_grad()

        model, inputs, classes = make_task()
        torch.manual_seed(1)
        steps(adamw(model, lr=3e-3), lambda x, y: F.cross_entropy(model(x), y), 300)
        optimizer = SelfTuner(adamw(model), model, total_steps=1500)
        steps(optimizer, optimizer.record(lambda x, y: F.cross_entropy(model(x), y)), 1500)


def test_an_option_set_by_hand_survives_a_broken_minibatch():
    torch.manual_seed(0)
    model = nn.Linear(6, 1)
    base = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    optimizer = SelfTuner(base, model, total_steps=400)
    compute_loss = optimizer.record(lambda x: F.mse_loss(model(x), x.sum(1, keepdim=True)))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(120):
            if step == 60:
                optimizer.param_groups[0]["weight_decay"] = 0.5
            compute_loss(torch.randn(16, 6) * (math.nan if step == 100 else 1.0)).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert said
    assert optimizer.param_groups[0]["weight_decay"] == 0.5


def test_switched_off_it_never_goes_back_and_nan_is_an_error():
    run = Bowl(guard=False).train(210)
    assert run.weight.abs().max() > 1e3
    assert len(set(run.rates[100:])) == 1
    with pytest.raises(NonFiniteLossError):
        train(adamw, nan_at(300), steps=500, guard=False)
