"""The tasks of benchmarks/quality that need no files: finite, repeatable, in their places."""

import math

import pytest
import torch

from benchmarks.quality.tasks.catalogue import (
    CHEAPEST,
    FOR_OTHER_BASES,
    NOT_FOR_SGD,
    OPEN,
    SEALED,
    SECONDS,
    TASKS,
)
from benchmarks.quality.tasks.task import Sources

PARTS = ("validation", "test")


class AskedError(Exception):
    pass


class Nothing(Sources):
    """There is no data at all."""

    def read_text(self):
        raise AskedError

    def dataset(self, name):
        raise AskedError

    def pretrained(self, name, train):
        raise AskedError


def first_step(name, seed):
    """Loss and gradient of the first minibatch, and what the net is worth before."""
    task = TASKS[name](Nothing(), seed)
    network = task.network()
    scores = [task.score(network, part) for part in PARTS]
    assert network.training
    loss = task.loss(network, task.minibatch(0))
    loss.backward()
    grouped = [p for parameters, _ in task.groups(network) for p in parameters]
    assert len({id(p) for p in grouped}) == len(grouped)
    assert {id(p) for p in grouped} == {id(p) for p in network.parameters() if p.requires_grad}
    judged = task.objective(network) if task.has_objective else [0.0, 1.0]
    assert len(judged) > 1
    return torch.cat([p.grad.flatten() for p in grouped]), [loss.item(), *scores, *judged]


def check_minibatches(task):
    """Methods that skip or repeat minibatches see the same ones as all others."""
    network = task.network()
    for p in network.parameters():
        p.data.add_(0.01 * torch.rand_like(p))  # at zero all rows have the same loss
    order = (0, 1, 2, 3, 3, 2, 1, 0)
    losses = [task.loss(network, task.minibatch(index)).item() for index in order]
    assert len(set(losses)) == 4
    assert losses == losses[::-1]
    task.minibatch(task.steps + 15)  # for the statistics of BatchNorm


@pytest.mark.parametrize("name", TASKS)
def test_a_task(name):
    try:
        gradient, numbers = first_step(name, seed=0)
    except AskedError:
        pytest.skip("needs images, a text or a net that was trained beforehand")
    assert gradient.isfinite().all()
    assert gradient.any()
    assert all(map(math.isfinite, numbers))
    assert min(numbers[1:3]) > 0
    torch.rand(7)  # what was drawn in between does not matter
    same_gradient, same_numbers = first_step(name, seed=0)
    assert same_numbers == numbers
    assert torch.equal(same_gradient, gradient)
    assert not torch.equal(first_step(name, seed=1)[0], gradient)
    task = TASKS[name](Nothing())
    check_minibatches(task)
    # No row is in both parts that are held out.
    count = len(task.test_inputs)
    task.test_inputs = task.test_targets = torch.arange(count)
    validation, test = (task.held_out(part)[0].tolist() for part in PARTS)
    assert sorted(validation + test) == list(range(count))
    assert abs(len(validation) - len(test)) <= 1


def test_the_catalogue():
    assert len(TASKS) == len(OPEN) + len(SEALED) == len(set(TASKS.values()))
    assert all(set(names) <= TASKS.keys() for names in (NOT_FOR_SGD, *FOR_OTHER_BASES.values()))
    assert SECONDS.keys() == SEALED.keys()
    assert len(SEALED) == 40
    assert max(SECONDS[task] for task in CHEAPEST) <= min(
        SECONDS[task] for task in SEALED if task not in CHEAPEST
    )
    assert TASKS["graph"](Nothing(), 0, 10.0).steps == 10 * TASKS["graph"].steps
