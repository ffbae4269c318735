"""The tasks of benchmarks/quality that need no files: finite, repeatable, in their places."""

import hashlib
import math

import pytest
import torch

from benchmarks.quality.tasks import catalogue
from benchmarks.quality.tasks.catalogue import (
    CHEAPEST,
    FOR_OTHER_BASES,
    FRESH,
    NOT_FOR_SGD,
    OPEN,
    SEALED,
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


@pytest.fixture
def name(request):
    """Skips what asks for images, a text or a net that was trained beforehand."""
    try:
        TASKS[request.param](Nothing()).network()
    except AskedError:
        pytest.skip("needs files")
    return request.param


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
    return loss.item(), torch.cat([p.grad.flatten() for p in grouped]), scores


@pytest.mark.parametrize("name", TASKS, indirect=True)
class TestEveryTask:
    def test_a_first_step(self, name):
        loss, gradient, scores = first_step(name, seed=0)
        assert math.isfinite(loss)
        assert gradient.isfinite().all()
        assert gradient.any()
        assert all(math.isfinite(score) and score > 0 for score in scores)
        torch.rand(7)  # what was drawn in between does not matter
        same_loss, same_gradient, same_scores = first_step(name, seed=0)
        assert (same_loss, same_scores) == (loss, scores)
        assert torch.equal(same_gradient, gradient)
        assert not torch.equal(first_step(name, seed=1)[1], gradient)

    def test_a_minibatch_is_that_of_its_number(self, name):
        """Methods that skip or repeat minibatches see the same ones as all others."""
        task = TASKS[name](Nothing())
        network = task.network()
        for p in network.parameters():
            p.data.add_(0.01 * torch.rand_like(p))  # at zero all rows have the same loss

        def loss(index):
            return task.loss(network, task.minibatch(index)).item()

        losses = [loss(index) for index in range(4)]
        assert len(set(losses)) == 4
        assert [loss(index) for index in reversed(range(4))] == losses[::-1]
        assert math.isfinite(loss(task.steps + 15))  # for the statistics of BatchNorm

    def test_no_row_is_in_both_parts_that_are_held_out(self, name):
        task = TASKS[name](Nothing())
        count = len(task.test_inputs)
        task.test_inputs = task.test_targets = torch.arange(count)
        validation, test = (task.held_out(part)[0].tolist() for part in PARTS)
        assert sorted(validation + test) == list(range(count))
        assert abs(len(validation) - len(test)) <= 1


@pytest.mark.parametrize("name", [n for n in TASKS if TASKS[n].has_objective], indirect=True)
def test_objectives_are_finite_and_repeat(name):
    task = TASKS[name](Nothing())
    network = task.network()
    first = task.objective(network)
    assert len(first) > 1
    assert all(math.isfinite(value) for value in first)
    torch.rand(7)
    assert task.objective(network) == first


def test_a_length_is_a_multiple():
    assert TASKS["graph"](Nothing(), 0, 10.0).steps == 10 * TASKS["graph"].steps


def test_the_catalogue():
    assert not set(OPEN.values()) & set(SEALED.values())
    assert len(TASKS) == len(OPEN) + len(SEALED) == len(set(TASKS.values()))
    assert all(set(names) <= TASKS.keys() for names in (NOT_FOR_SGD, *FOR_OTHER_BASES.values()))
    assert set(CHEAPEST) <= SEALED.keys()


def test_the_digest_of_its_name_has_opened_a_task():
    def is_even(name):
        return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 == 0

    assert all(map(is_even, catalogue.OPENED))
    assert not any(map(is_even, catalogue._KEPT))
    assert not {*catalogue._SECOND, *FRESH} & {*catalogue.OPENED, *catalogue._KEPT}
