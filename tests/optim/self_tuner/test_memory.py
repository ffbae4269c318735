"""What is kept in memory: copies of the arms in a race, one average after it, never a minibatch."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annealtune.optim.self_tuner import SelfTuner


class Inputs:
    """An argument of a recorded function whose end can be seen."""

    def __init__(self, x, y):
        self.x, self.y = x, y


def bytes_below(start, *, without=()):
    """Sum the bytes of all tensors that can be reached, each storage once."""
    seen, found = {id(x) for x in without}, {}
    waiting = [start]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, type) or callable(value):
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            found[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        elif isinstance(value, dict):
            waiting += [*value.values()]
        elif isinstance(value, list | tuple | set):
            waiting += [*value]
        elif hasattr(value, "__dict__"):
            waiting += [*vars(value).values()]
    return sum(found.values())


def make(**settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 50), nn.BatchNorm1d(50), nn.Linear(50, 3))
    base = torch.optim.AdamW(model.parameters())
    return model, SelfTuner(base, model=model, total_steps=300, **settings)


def weights_and_buffers(model):
    return sum(t.nbytes for t in (*model.parameters(), *model.buffers()))


def one_step(model, optimizer, compute_loss):
    inputs = Inputs(torch.randn(16, 20), torch.randint(0, 3, (16,)))
    gone = weakref.ref(inputs)
    optimizer.zero_grad()
    compute_loss(inputs).backward()
    del inputs
    return gone


@pytest.mark.parametrize("offload", [False, True])
def test_a_race_keeps_a_copy_of_the_run_for_each_live_arm(offload):
    model, optimizer = make(offload=offload, neighborhood={"lr": [1e-3, 2e-3, 1e2]})
    compute_loss = optimizer.record(lambda i: F.cross_entropy(model(i.x), i.y))
    seen = []
    while optimizer.is_racing:
        one_step(model, optimizer, compute_loss)
        optimizer.step()
        race = optimizer._races.race
        if race is not None:
            state = sum(v.nbytes for entry in optimizer.state.values() for v in entry.values())
            one_run = weights_and_buffers(model) + state
            kept = bytes_below(
                optimizer._races,
                without=(model, optimizer.base, race._base.param_groups, race._base.state),
            )
            assert kept <= len(race.standings.live) * one_run
            seen.append(kept)
    assert len(seen) > 5
    assert min(seen) < max(seen)  # an arm that is dropped is let go


def test_after_the_race_one_copy_of_the_weights_is_kept():
    model, optimizer = make()
    compute_loss = optimizer.record(lambda i: F.cross_entropy(model(i.x), i.y))
    while optimizer.is_racing:
        one_step(model, optimizer, compute_loss)
        optimizer.step()
    for _ in range(20):
        one_step(model, optimizer, compute_loss)
        optimizer.step()

    own = {key: value for key, value in vars(optimizer).items() if key not in ("base", "model")}
    kept = bytes_below(own, without=(model, optimizer.base))
    small = 6000  # losses that are not yet read, and a random state
    assert kept <= weights_and_buffers(model) + small
    assert optimizer._races.race is None


def test_no_tensor_of_an_arm_outlives_the_race():
    model, optimizer = make()
    compute_loss = optimizer.record(lambda i: F.cross_entropy(model(i.x), i.y))
    one_step(model, optimizer, compute_loss)
    optimizer.step()
    arms = optimizer._races.race.arms
    states = [arms._origin, *arms._idle.values()]
    ends = [weakref.ref(t) for s in states for t in (*s._weights, *s._buffers.values())]
    del states
    del arms
    while optimizer.is_racing:
        one_step(model, optimizer, compute_loss)
        optimizer.step()
    gc.collect()

    assert ends
    assert [end() for end in ends] == [None] * len(ends)


class TestAMinibatch:
    def test_a_recorded_one_is_let_go_with_the_step(self):
        model, optimizer = make()
        compute_loss = optimizer.record(lambda i: F.cross_entropy(model(i.x), i.y))
        for _ in range(60):
            racing = optimizer.is_racing
            gone = one_step(model, optimizer, compute_loss)
            assert (gone() is not None) == racing  # outside races it is not kept at all
            optimizer.step()
            assert gone() is None
        assert not optimizer.is_racing

    def test_one_that_is_thrown_away_is_let_go_with_its_gradient(self):
        model, optimizer = make()
        compute_loss = optimizer.record(lambda i: F.cross_entropy(model(i.x), i.y))
        gone = one_step(model, optimizer, compute_loss)
        optimizer.zero_grad()
        gc.collect()

        assert gone() is None

    def test_one_of_a_closure_is_let_go_with_the_step(self):
        model, optimizer = make()
        for _ in range(60):
            inputs = Inputs(torch.randn(16, 20), torch.randint(0, 3, (16,)))
            gone = weakref.ref(inputs)
            optimizer.step(lambda i=inputs: F.cross_entropy(model(i.x), i.y))
            del inputs
            assert gone() is None

    def test_one_of_a_probe_is_let_go_with_the_step(self):
        model, optimizer = make()
        for _ in range(60):
            inputs = Inputs(torch.randn(16, 20), torch.randint(0, 3, (16,)))
            gone = weakref.ref(inputs)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs.x), inputs.y)
            loss.backward()
            optimizer.step(loss=loss, probe=lambda i=inputs: F.cross_entropy(model(i.x), i.y))
            del inputs, loss
            assert gone() is None
