"""Steps that cannot be made are refused with a reason, and leave everything as it was."""

import copy
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune import EmbeddedTuner, grid
from annealtune.optim.self_tuner import SelfTuner


class Loop:
    def __init__(self, features=4, **settings):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 2))
        base = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        settings = {"model": self.model, "total_steps": 400, **settings}
        self.optimizer = SelfTuner(base, **settings)
        self.inputs, self.classes = torch.randn(16, features), torch.randint(0, 2, (16,))

    def loss(self):
        return F.cross_entropy(self.model(self.inputs), self.classes)

    def steps(self, count):
        for _ in range(count):
            self.optimizer.step(self.loss)
        return self

    def past_the_race(self):
        while self.optimizer.is_racing:
            self.steps(1)
        return self


@pytest.fixture(params=[0, 3], ids=["at the first step", "in the race"])
def loop(request):
    return Loop().steps(request.param)


@pytest.fixture
def refused(picture):
    def refused(loop, error, pattern, function):
        loop.optimizer.zero_grad()
        before = {**picture(loop.model, loop.optimizer), "gradients": None, "random": None}
        steps = loop.optimizer.steps
        with pytest.raises(error, match=pattern) as raised:
            function()
        after = {**picture(loop.model, loop.optimizer), "gradients": None, "random": None}
        assert after == before
        assert loop.optimizer.steps == steps
        assert re.search(r"SelfTuner|load_state_dict", str(raised.value))
        loop.steps(2)  # and it goes on

    return refused


class TestNothingTellsHowTheLossIsComputed:
    def test_a_bare_step(self, loop, refused):
        def bare():
            loop.loss().backward()
            loop.optimizer.step()

        refused(loop, TypeError, r"got nothing.*opt\.record\(fn\).*step\(closure\)", bare)

    def test_calls_under_no_grad_only(self, loop, refused):
        compute_loss = loop.optimizer.record(loop.loss)

        def unrecorded():
            with torch.no_grad():
                compute_loss()
            loop.optimizer.step()

        refused(loop, TypeError, r"no call of a recorded function.*no_grad", unrecorded)

    def test_a_loss_without_a_probe(self, loop, refused):
        def without_probe():
            loss = loop.loss()
            loss.backward()
            loop.optimizer.step(loss=loss)

        refused(loop, TypeError, r"must be given probe=\.\.\. too.*race", without_probe)

    def test_a_probe_that_is_no_function(self, loop, refused):
        def no_function():
            loss = loop.loss()
            loss.backward()
            loop.optimizer.step(loss=loss, probe=3)

        refused(loop, TypeError, r"probe=\.\.\.\) must be callable, got 3", no_function)

    @pytest.mark.parametrize("wrong", [0.3, None])
    def test_a_probe_that_returns_no_loss(self, loop, wrong):
        loss = loop.loss()
        loss.backward()
        with pytest.raises(ValueError, match=r"probe=\.\.\.\): in a race every arm needs its own"):
            loop.optimizer.step(loss=loss, probe=lambda: wrong)
        loop.steps(2)

    def test_a_closure_that_is_no_function(self, loop, refused):
        refused(loop, TypeError, "must be given a function", lambda: loop.optimizer.step(3))


class TestALossThatIsNone:
    @pytest.mark.parametrize("wrong", [lambda loss: None, lambda loss: "0.3"])
    def test_of_a_closure(self, loop, refused, wrong):
        refused(
            loop,
            ValueError,
            "must return a loss",
            lambda: loop.optimizer.step(lambda: wrong(loop.loss())),
        )

    def test_of_a_closure_with_many_elements(self, loop, refused):
        refused(
            loop,
            ValueError,
            r"scalar, got a tensor of shape \(16, 2\).*mean",
            lambda: loop.optimizer.step(lambda: loop.model(loop.inputs)),
        )

    @pytest.mark.parametrize("wrong", [lambda m, x: m(x), lambda m, x: 0.5, lambda m, x: (1.0, 2)])
    def test_of_a_recorded_function(self, loop, refused, wrong):
        compute_loss = loop.optimizer.record(lambda: wrong(loop.model, loop.inputs))
        refused(loop, TypeError, r"record\(fn\).*scalar loss.*got", compute_loss)

    def test_of_a_recorded_function_without_a_gradient(self, loop, refused):
        compute_loss = loop.optimizer.record(lambda: loop.loss().detach())
        refused(loop, ValueError, r"record\(fn\).*require a gradient", compute_loss)

    def test_no_function_to_record(self, loop, refused):
        refused(loop, TypeError, "must be given a function", lambda: loop.optimizer.record(3))


class TestSomebodyElseWrites:
    def write(self, loop):
        with torch.no_grad():
            for p in loop.model.parameters():
                p.mul_(0.5)

    def test_weights_in_the_middle_of_a_race(self):
        for way in (self.write, lambda loop: loop.model.load_state_dict(loop.model.state_dict())):
            loop = Loop().steps(3)
            way(loop)
            with pytest.raises(RuntimeError, match=r"SelfTuner.*must not be written.*is_racing"):
                loop.steps(1)

    def test_weights_before_the_first_step_and_after_the_race_are_welcome(self):
        loop = Loop()
        self.write(loop)
        loop.steps(3).past_the_race()
        self.write(loop)
        loop.steps(3)

    def test_a_checkpoint_in_the_middle_of_a_race_is_welcome(self):
        loop, other = Loop().steps(5), Loop().steps(2)
        other.model.load_state_dict(loop.model.state_dict())
        other.optimizer.load_state_dict(copy.deepcopy(loop.optimizer.state_dict()))
        other.steps(3)
        loop.steps(3)

        for ours, theirs in zip(loop.model.parameters(), other.model.parameters(), strict=True):
            assert torch.equal(ours, theirs)

    @pytest.mark.parametrize("racing", [True, False])
    def test_a_rate_by_hand(self, racing):
        loop = Loop().steps(3) if racing else Loop().past_the_race()
        loop.optimizer.param_groups[0]["lr"] = 0.123
        with pytest.raises(ValueError, match=r"must not be written by anything else.*0\.123"):
            loop.steps(1)

    @pytest.mark.parametrize("racing", [True, False])
    def test_a_scheduler(self, racing):
        loop = Loop().steps(3) if racing else Loop().past_the_race()
        torch.optim.lr_scheduler.LambdaLR(loop.optimizer, lambda epoch: 0.5)
        with pytest.raises(ValueError, match="Take the scheduler away"):
            loop.steps(1)


class TestTheObjective:
    @pytest.mark.parametrize("wrong", ["12", "best", None, [], [[1.0]], {"loss": 1}])
    def test_that_returns_no_number(self, wrong):
        loop = Loop(objective=lambda: wrong)
        with pytest.raises(TypeError, match=r"SelfTuner\(objective=...\) must return a number"):
            loop.past_the_race()

    def test_that_returns_now_more_and_now_less(self):
        lengths = iter(range(1, 100))
        loop = Loop(objective=lambda: [1.0] * next(lengths))
        with pytest.raises((TypeError, ValueError), match=r"SelfTuner\(objective=...\) must"):
            loop.past_the_race()


def test_a_step_within_averaged():
    loop = Loop().past_the_race().steps(10)
    with loop.optimizer.averaged(), pytest.raises(RuntimeError, match=r"within averaged\(\)"):
        loop.steps(1)
    loop.steps(1)


def test_a_closure_through_a_scaler(refused):
    loop = Loop().steps(2)
    scaler = torch.amp.GradScaler("cpu")

    def scaled():
        scaler.scale(loop.loss()).backward()
        scaler.step(loop.optimizer, loop.loss)

    refused(loop, (TypeError, RuntimeError), r"(?i)closure", scaled)


class TestAnotherState:
    @pytest.mark.parametrize("made", [0, 3, 60])
    def test_of_another_neighborhood(self, refused, made):
        state = Loop(neighborhood=grid(lr=[0.01, 0.1])).steps(made).optimizer.state_dict()
        loop = Loop(neighborhood=grid(lr=[0.02, 0.1])).steps(2)
        refused(
            loop, ValueError, "same neighborhood", lambda: loop.optimizer.load_state_dict(state)
        )

    @pytest.mark.parametrize("made", [3, 60])
    def test_of_another_model(self, refused, made):
        state = Loop(features=5).steps(made).optimizer.state_dict()
        loop = Loop().steps(2)
        refused(loop, ValueError, "same weights", lambda: loop.optimizer.load_state_dict(state))

    def test_of_another_optimizer(self, refused):
        other = Loop()
        tuner = EmbeddedTuner(other.optimizer.base, model=other.model, temperature=0.0)
        tuner.step(other.loss)
        state = copy.deepcopy(tuner.state_dict())
        loop = Loop().steps(2)
        refused(
            loop,
            ValueError,
            "of SelfTuner returned, got that of 'EmbeddedTuner'",
            lambda: loop.optimizer.load_state_dict(state),
        )
