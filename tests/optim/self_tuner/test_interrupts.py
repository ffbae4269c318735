"""A run that is interrupted in a race can be saved, copied and continued; no arm is mixed up."""

import copy
import io
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import annealtune
from annealtune.annealing.race import allowance
from annealtune.optim.self_tuner import SelfTuner
from annealtune.optim.trial.run_state import RunState
from tests.optim.self_tuner.classification import BASES, make_task

OURS = str(Path(annealtune.__file__).parent)
RATES = [0.01, 0.011, 0.012]  # so near each other that none is dropped


class Loop:
    """A run whose losses, arms and places of interruption are in the hand of a test."""

    def __init__(self, make_base=BASES[0], **settings):
        self.model, self.inputs, self.classes = make_task()
        self.model = nn.Sequential(nn.BatchNorm1d(6), *self.model)
        self.optimizer = SelfTuner(
            make_base(self.model), model=self.model, total_steps=300, **settings
        )
        self.evaluations = 0
        self.interrupt_at = None  # number of the evaluation that is interrupted
        self.made = 0

    def closure(self):
        self.evaluations += 1
        if self.evaluations == self.interrupt_at:
            raise KeyboardInterrupt
        chosen = slice(32 * (self.made % 16), 32 * (self.made % 16) + 32)
        return F.cross_entropy(self.model(self.inputs[chosen]), self.classes[chosen])

    def step(self):
        self.optimizer.step(self.closure)
        self.made += 1

    def to_the_end(self):
        while self.made < 300:
            self.step()
        self.model.eval()
        with torch.no_grad():
            return F.cross_entropy(self.model(self.inputs), self.classes).item()

    def arms(self):
        """The weights, buffers and state of every arm, the one in the model included."""
        race = self.optimizer._races.race
        found = {}
        for arm in [race.arms.in_model, *sorted(race.arms._idle)]:
            race.arms.switch_to(arm)
            tensors = [*self.model.parameters(), *self.model.buffers()]
            state = [
                value
                for p in self.model.parameters()
                for value in self.optimizer.state.get(p, {}).values()
            ]
            found[arm] = [t.detach().clone() for t in (*tensors, *state)]
        return found


def same(ours, theirs):
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


def check_that_it_can_be_saved_and_copied(loop):
    buffer = io.BytesIO()
    torch.save(loop.optimizer.state_dict(), buffer)
    buffer.seek(0)
    torch.load(buffer, weights_only=True)
    copied = copy.deepcopy(loop)
    copied.interrupt_at = None
    copied.step()


def race_of(loop):
    return loop.optimizer._races.race


@pytest.fixture(scope="module")
def evaluations_of_the_race():
    """At which step each evaluation of an uninterrupted race is made."""
    loop = Loop(neighborhood={"lr": RATES})
    steps = []
    while loop.optimizer.is_racing:
        before = loop.evaluations
        loop.step()
        steps += [loop.made - 1] * (loop.evaluations - before)
    return steps


def test_every_evaluation_of_a_race_can_be_interrupted(evaluations_of_the_race):
    assert len(evaluations_of_the_race) > 10
    for place in range(1, len(evaluations_of_the_race) + 1, 4):
        loop = Loop(neighborhood={"lr": RATES})
        loop.interrupt_at = place
        while loop.made < evaluations_of_the_race[place - 1]:
            loop.step()
        with pytest.raises(KeyboardInterrupt):
            loop.step()

        check_that_it_can_be_saved_and_copied(loop)
        for _ in range(2):
            loop.step()
        assert all(bool(p.isfinite().all()) for p in loop.model.parameters())


@pytest.mark.parametrize("base", BASES)
def test_a_run_that_was_interrupted_often_ends_well(base):
    loop, interrupts = Loop(base), 0  # a step that is interrupted leaves its arms uneven
    first = loop.closure().item()
    while loop.optimizer.is_racing:
        loop.interrupt_at = loop.evaluations + 1 + interrupts % 4
        try:
            loop.step()
        except KeyboardInterrupt:
            interrupts += 1
            loop.interrupt_at = None
            loop.step()
    loop.interrupt_at = None
    assert interrupts > 4

    assert loop.to_the_end() < 0.3 * first


class Injection:
    """Raises KeyboardInterrupt at the n-th line of our own modules that is run."""

    def __init__(self, place):
        self.place = place
        self.lines = 0
        self.where = None

    def __call__(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        return self.line

    def line(self, frame, event, argument):
        if event == "line":
            self.lines += 1
            if self.lines == self.place:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self.line


def injected_step(loop, place):
    """Make a step that is interrupted at a line; return the injection."""
    injection = Injection(place)
    former = sys.gettrace()
    sys.settrace(injection)
    try:
        loop.step()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(former)
    return injection


def started(after):
    loop = Loop(neighborhood={"lr": RATES})
    for _ in range(after):
        loop.step()
    return loop


def check_every_line(after, *, stride):
    start = started(after)
    undisturbed = copy.deepcopy(start)
    before = copy.deepcopy(start).arms()
    undisturbed.step()
    later = undisturbed.arms()
    lines = injected_step(copy.deepcopy(start), -1).lines
    weights = len(list(start.model.parameters()))
    assert lines > 500

    for place in range(1, lines + 1, stride):
        loop = copy.deepcopy(start)
        injection = injected_step(loop, place)
        where = f"interrupted at {injection.where}"
        assert injection.where is not None

        check_that_it_can_be_saved_and_copied(loop)
        live = set(race_of(loop).standings.live)
        arms = copy.deepcopy(loop).arms()
        assert live <= arms.keys(), where
        for arm in live:
            # An arm is as before, or has made its step. A forward moves its buffers before that.
            assert (
                same(arms[arm], later[arm])
                or same(arms[arm], before[arm])
                or same(arms[arm][:weights], before[arm][:weights])
            ), f"{where}: arm {arm} is neither as before nor as after its step"
        for _ in range(4):
            loop.step()


@pytest.mark.parametrize("after", [1, 2])
def test_no_line_leaves_an_arm_mixed_up(after):
    check_every_line(after, stride=61)


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 6])
def test_truly_no_line_leaves_an_arm_mixed_up(after):
    check_every_line(after, stride=1)


def test_a_copy_in_the_middle_of_a_race_is_a_run_of_its_own():
    loop = started(3)
    copied = copy.deepcopy(loop)

    copied.step()
    loop.step()

    for ours, theirs in zip(loop.model.parameters(), copied.model.parameters(), strict=True):
        assert ours is not theirs
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("on_host", [False, True])
def test_an_exchange_that_is_interrupted_is_completed(on_host):
    model = nn.Linear(2, 1, bias=False)
    base = torch.optim.Adam(model.parameters(), lr=0.1)
    states = []
    for step in range(2):
        states.append(RunState(base, model, on_host=on_host))
        known = copy.deepcopy((model.state_dict(), base.state_dict()))
        model(torch.ones(1, 2) + step).sum().backward()
        base.step()
    after = copy.deepcopy((model.state_dict(), base.state_dict()))
    state, place, injection = states[-1], 0, Injection(0)

    while place == 0 or injection.where is not None:
        place += 1
        injection, noted = Injection(place), []
        sys.settrace(injection)
        try:
            state.exchange(lambda noted=noted: noted.append("exchanged"))
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)

        weights, moments = known if noted else after
        assert torch.equal(model.weight, weights["weight"]), injection.where
        for key, expected in moments["state"][0].items():
            assert torch.equal(base.state_dict()["state"][0][key], expected), injection.where
        if noted:
            state.exchange()
    assert place > 50


def test_the_end_of_a_race_can_be_interrupted():
    start = Loop()
    while True:
        last = copy.deepcopy(start)
        last.step()
        if not last.optimizer.is_racing:
            break
        start = last
    lines = injected_step(copy.deepcopy(start), -1).lines

    for place in range(lines // 3, lines + 1, 53):
        loop = copy.deepcopy(start)
        injected_step(loop, place)
        check_that_it_can_be_saved_and_copied(loop)
        for _ in range(10):
            loop.step()
        races = loop.optimizer.races
        assert len(races) == len({race.step for race in races})
        assert loop.optimizer.extra_steps <= allowance(300).extra_steps + len(RATES)
