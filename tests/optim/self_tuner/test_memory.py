"""What is kept in memory: copies of the arms in a race, one average after it, never a minibatch."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree

from annealtune import SelfTuner


class Inputs:
    """An argument of a recorded function whose end can be seen."""

    def __init__(self):
        self.x, self.y = torch.randn(16, 20), torch.randint(0, 3, (16,))


def make(**settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 50), nn.BatchNorm1d(50), nn.Linear(50, 3))
    optimizer = SelfTuner(torch.optim.AdamW(model.parameters()), model, total_steps=300, **settings)
    return model, optimizer, optimizer.record(lambda i: F.cross_entropy(model(i.x), i.y))


def bytes_of(tree):
    """Sum the bytes of all tensors, each storage once."""
    tensors = [t for t in _pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def own_bytes(optimizer):
    return bytes_of(optimizer.state_dict()["param_groups"][0]["annealtune"])


@pytest.mark.parametrize("offload", [False, True])
def test_a_copy_of_the_run_for_each_live_arm_and_after_the_race_the_average(offload):
    model, optimizer, compute_loss = make(offload=offload, neighborhood={"lr": [1e-3, 2e-3, 10.0]})
    weights = bytes_of([*model.parameters(), *model.buffers()])
    seen, small = [], 20_000  # losses, random states
    for _ in range(60):
        compute_loss(Inputs()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if optimizer.is_racing:
            one_run = weights + bytes_of(list(optimizer.state.values()))
            seen.append(own_bytes(optimizer))
            assert seen[-1] <= 3 * one_run + small
    assert len(seen) > 5
    assert min(seen) < max(seen)  # an arm that is dropped is let go
    assert own_bytes(optimizer) <= weights + small


@pytest.mark.parametrize("way", ["record", "closure", "thrown away"])
def test_a_minibatch_is_let_go_with_the_step(way):
    model, optimizer, compute_loss = make()
    for _ in range(5 if way == "thrown away" else 60):
        inputs, racing = Inputs(), optimizer.is_racing
        gone = weakref.ref(inputs)
        if way == "closure":
            optimizer.step(lambda i=inputs: F.cross_entropy(model(i.x), i.y))
            del inputs
        else:
            compute_loss(inputs).backward()
            del inputs
            assert (gone() is not None) == racing  # outside races it is not kept at all
            if way == "record":
                optimizer.step()
            optimizer.zero_grad()
        if way == "thrown away":
            gc.collect()
        assert gone() is None
    assert optimizer.is_racing == (way == "thrown away")
