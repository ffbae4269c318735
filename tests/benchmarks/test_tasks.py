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

# These ask for images, a text or a net that was trained beforehand; all others load in no time.
NEED_FILES = {
    "convolutions",
    "deep",
    "fine-tuned-shifted",
    "fine-tuned-own",
    "contrastive",
    "autoencoder",
    "recurrent",
    "transformer",
    "fine-tuned-transformer",
    "words",
    "siren-image",
    "two-groups",
    "frozen-body",
    "unfrozen",
    "low-rank-adapter",
    "wide",
    "residual",
    "batches-of-four",
    "fashion-convolutions",
    "vision-transformer",
    "cifar-convolutions",
    "denoising",
    "skip-gram",
    "bag-of-words",
    "wrong-labels",
    "softmax-regression",
    "fine-tuned-digits",
    "variational",
    "hypernetwork",
    "dilated-convolutions",
    "punctuation",
    "fine-tuned-grey",
    "biases-only",
}
WITHOUT_FILES = sorted(TASKS.keys() - NEED_FILES)
PARTS = ("validation", "test")


class AskedError(Exception):
    pass


class Nothing(Sources):
    """There is no data at all."""

    def read_text(self):
        raise AskedError("for a text")

    def dataset(self, name):
        raise AskedError(f"for {name}")

    def pretrained(self, name, train):
        raise AskedError(f"for the net {name}")


def first_step(name, seed):
    """Loss and gradient of the first minibatch, and what the net is worth before."""
    task = TASKS[name](Nothing(), seed)
    network = task.network()
    assert network.training
    scores = [task.score(network, part) for part in PARTS]
    assert network.training
    loss = task.loss(network, task.minibatch(0))
    loss.backward()
    trained = [p for parameters, _ in task.groups(network) for p in parameters]
    return loss.item(), torch.cat([p.grad.flatten() for p in trained]), scores


@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_a_first_step(name):
    loss, gradient, scores = first_step(name, seed=0)
    assert math.isfinite(loss)
    assert gradient.isfinite().all()
    assert gradient.any()
    assert all(math.isfinite(score) and score > 0 for score in scores)
    torch.rand(7)  # what was drawn in between does not matter
    same_loss, same_gradient, same_scores = first_step(name, seed=0)
    assert (same_loss, same_scores) == (loss, scores)
    assert torch.equal(same_gradient, gradient)
    _, other_gradient, _ = first_step(name, seed=1)
    assert not torch.equal(other_gradient, gradient)


@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_a_minibatch_is_that_of_its_number(name):
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
    # A run may read on beyond its end, for the statistics of BatchNorm.
    assert math.isfinite(loss(task.steps + 15))


@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_no_row_is_in_both_parts_that_are_held_out(name):
    task = TASKS[name](Nothing())
    count = len(task.test_inputs)
    task.test_inputs = task.test_targets = torch.arange(count)
    validation, test = (task.held_out(part)[0].tolist() for part in PARTS)
    assert sorted(validation + test) == list(range(count))
    assert abs(len(validation) - len(test)) <= 1


@pytest.mark.parametrize("name", [n for n in WITHOUT_FILES if TASKS[n].has_objective])
def test_objectives_are_finite_and_repeat(name):
    task = TASKS[name](Nothing())
    network = task.network()
    first = task.objective(network)
    assert len(first) > 1
    assert all(isinstance(value, float) and math.isfinite(value) for value in first)
    torch.rand(7)
    assert task.objective(network) == first


@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_every_parameter_that_is_trained_is_in_one_group(name):
    task = TASKS[name](Nothing())
    network = task.network()
    grouped = [p for parameters, _ in task.groups(network) for p in parameters]
    assert len({id(p) for p in grouped}) == len(grouped)
    assert {id(p) for p in grouped} == {id(p) for p in network.parameters() if p.requires_grad}


@pytest.mark.parametrize("name", sorted(NEED_FILES))
def test_the_others_do_need_files(name):
    with pytest.raises(AskedError):
        TASKS[name](Nothing()).network()


def test_a_length_is_a_multiple():
    assert TASKS["graph"](Nothing(), 0, 10.0).steps == 10 * TASKS["graph"].steps


class TestCatalogue:
    def test_open_and_sealed_are_apart(self):
        assert not OPEN.keys() & SEALED.keys()
        assert not set(OPEN.values()) & set(SEALED.values())
        assert len(TASKS) == len(OPEN) + len(SEALED)

    def test_every_list_is_of_tasks(self):
        for names in (NOT_FOR_SGD, CHEAPEST, *FOR_OTHER_BASES.values()):
            assert set(names) <= TASKS.keys()
            assert len(set(names)) == len(names)

    def test_long_runs_are_of_sealed_tasks(self):
        assert set(CHEAPEST) <= SEALED.keys()

    def test_the_digest_of_its_name_has_opened_a_task(self):
        def is_even(name):
            return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 == 0

        assert all(map(is_even, catalogue.OPENED))
        assert not any(map(is_even, catalogue._KEPT))
        later = [*catalogue._SECOND, *FRESH]
        assert not set(later) & (catalogue.OPENED.keys() | catalogue._KEPT.keys())
        assert len(set(later)) == len(later)
