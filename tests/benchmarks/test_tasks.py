"""The tasks of benchmarks/quality that need no files: finite, repeatable, in their places."""

import functools
import math
from types import SimpleNamespace

import pytest
import torch

from benchmarks.quality.tasks import adaptation
from benchmarks.quality.tasks.catalogue import (
    CHEAPEST,
    FOR_OTHER_BASES,
    NOT_FOR_SGD,
    OPEN,
    SEALED,
    SECONDS,
    TASKS,
)
from benchmarks.quality.tasks.task import Sources, generator

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


class Noise(Sources):
    """Noise in the place of images and of the text."""

    def read_text(self):
        codes = torch.randint(97, 123, (901_000,), generator=generator(1), dtype=torch.uint8)
        return bytes(codes.tolist()).decode()

    def dataset(self, name):
        return noisy_images()

    def pretrained(self, name, train):
        return train().state_dict()


@functools.cache
def noisy_images():
    drawn = [torch.randint(256, (n, 1, 28, 28), dtype=torch.uint8) for n in (36_000, 2000)]
    labels = [torch.randint(10, (len(images),)) for images in drawn]
    names = ("train_inputs", "test_inputs", "train_targets", "test_targets")
    return SimpleNamespace(**dict(zip(names, drawn + labels, strict=True)))


def first_step(name, seed, sources=None):
    """Loss and gradient of the first minibatch, and what the net is worth before."""
    task = TASKS[name](sources or Nothing(), seed)
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


FILES = ("masked-characters", "turned-images", "drawn-again", "twenty-layers")


@pytest.mark.parametrize("name", FILES)
def test_a_fresh_task_that_needs_files(name, monkeypatch):
    monkeypatch.setattr(adaptation, "pretrain", lambda network, *_, **__: network)
    sources = Noise()
    gradient, numbers = first_step(name, 0, sources)
    assert gradient.isfinite().all()
    assert gradient.any()
    assert all(map(math.isfinite, numbers))
    assert min(numbers[1:3]) > 0
    assert first_step(name, 0, sources)[1] == numbers
    assert first_step(name, 1, sources)[1] != numbers
    check_minibatches(TASKS[name](sources))


@pytest.mark.parametrize(("name", "trained"), [("turned-images", 6), ("drawn-again", 2)])
def test_a_frozen_net_is_the_same_for_every_seed_and_what_is_new_is_not(name, trained, monkeypatch):
    monkeypatch.setattr(adaptation, "pretrain", lambda network, *_, **__: network)
    one, other = (TASKS[name](Noise(), seed).network() for seed in (0, 1))
    pairs = list(zip(one.parameters(), other.parameters(), strict=True))
    assert sum(p.requires_grad for p, _ in pairs) == trained
    for p, q in pairs:
        is_alike = torch.equal(p, q)
        assert is_alike == (not p.requires_grad or not p.any())  # the upper adapters are zero
    if name == "turned-images":
        images = torch.randn(3, 1, 14, 14)
        assert torch.equal(one(images), other(images))  # so both begin as the frozen net


def test_the_graph_of_links_has_the_edges_to_train_on_alone():
    task = TASKS["links"](Nothing())
    begun, ends = task.inputs[:, 0], task.targets
    assert task.neighbors[begun, ends].min() > 0
    edges = torch.stack([begun, ends], 1).unique(dim=0)
    assert int((task.neighbors > 0).sum()) == len(edges)


def test_the_blurred_photograph_has_no_misfit_but_its_noise():
    task = TASKS["deblurring"](Nothing())
    network = task.network()
    network.pixels.data = task.test_targets.view(task.size, task.size)
    assert task.score(network, "test") == 0
    misfit = task.loss(network, (task.inputs, task.targets)).sqrt().item()
    assert misfit == pytest.approx(task.noise, rel=0.1)


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
