"""Three seeds, three sources of chance; who sees which images, and how often."""

from collections import Counter
from itertools import chain

import pytest
import torch

from annealtune.training import data, run
from annealtune.training.progress import Progress

SEEDS = ("init_seed", "data_seed", "decision_seed")


def images_of(batches) -> Counter:
    return Counter(image.numpy().tobytes() for image in batches._inputs)


def draws(session):
    """What each seed decides: weights and dropout, images and their order, settings."""
    weights = torch.cat([p.flatten() for p in session.model.parameters()])
    dropout = torch.rand(3)
    batches = [labels.tolist() for _, labels in session.train_batches]
    validation = session.validation_batches._inputs
    picks = [session.method._optimizer._annealing.rng.random() for _ in range(5)]
    return {
        "init_seed": [weights.tolist(), dropout.tolist()],
        "data_seed": [batches, validation.tolist()],
        "decision_seed": [picks],
    }


@pytest.mark.parametrize("changed", SEEDS)
def test_a_seed_changes_what_it_names_and_nothing_else(session, changed):
    before, after = draws(session(seed=3)), draws(session(seed=3, **{changed: 4}))
    for name in SEEDS:
        for old, new in zip(before[name], after[name], strict=True):
            assert (old != new) == (name == changed), name


def test_seed_is_all_three(session):
    assert draws(session(seed=4)) == draws(session(seed=3, **dict.fromkeys(SEEDS, 4)))


@pytest.mark.parametrize("changed", SEEDS)
def test_the_run_depends_on_each(complete, lines_of, changed):
    first, same, other = complete(epochs=1), complete(epochs=1), complete(epochs=1, **{changed: 1})
    tried = [
        [(line["setting"], line["tried"]) for line in moves["settings"]]
        for moves in (lines_of(run / "moves.jsonl")[0] for run in (first, same, other))
    ]
    losses = [lines_of(run / "metrics.jsonl")[0]["train_loss"] for run in (first, same, other)]
    assert losses[0] == losses[1] != losses[2]
    assert tried[0] == tried[1]
    assert (tried[0] != tried[2]) == (changed == "decision_seed")


def test_the_global_generators_of_others_do_not_matter(complete, outcome):
    torch.manual_seed(1)
    first = outcome(complete(epochs=1))
    torch.manual_seed(2)
    torch.rand(1000)
    assert outcome(complete(epochs=1)) == first


class TestMinibatches:
    @staticmethod
    def epochs(session):
        return [[labels.tolist() for _, labels in session.train_batches] for _ in range(3)]

    def test_are_new_every_epoch(self, session):
        first, second, third = self.epochs(session())
        assert first != second != third != first
        assert Counter(chain(*first)) == Counter(chain(*second))

    def test_or_divided_once(self, session):
        first, second, third = self.epochs(session(reshuffle=False))
        assert first == second == third


class TestSets:
    def test_validation_images_are_not_trained_on(self, session, digits):
        made = session(train_size=None, validation_fraction=0.25)
        training, validation = images_of(made.train_batches), images_of(made.validation_batches)
        assert sum(validation.values()) == round(1437 * 0.25)
        everything = Counter(image.numpy().tobytes() for image in digits.train_inputs)
        assert training + validation == everything

    def test_the_images_can_be_kept_while_their_order_varies(self, session):
        one, other = session(split_seed=5, data_seed=1), session(split_seed=5, data_seed=2)
        assert images_of(one.validation_batches) == images_of(other.validation_batches)
        assert images_of(one.train_batches) == images_of(other.train_batches)
        orders = [[labels.tolist() for _, labels in made.train_batches] for made in (one, other)]
        assert orders[0] != orders[1]
        apart = session(split_seed=6, data_seed=1)
        assert images_of(one.validation_batches) != images_of(apart.validation_batches)

    def test_a_subset_has_its_size_and_lies_in_a_larger_one(self, session):
        small = session(train_size=100, validate_on="test")
        large = session(train_size=300, validate_on="test")
        assert sum(images_of(small.train_batches).values()) == 100
        assert images_of(small.train_batches) <= images_of(large.train_batches)

    def test_the_papers_protocol(self, session, digits):
        made = session(validate_on="test")
        assert torch.equal(made.validation_batches._inputs, digits.test_inputs)
        assert sum(images_of(made.train_batches).values()) == 200  # none is held out


@pytest.mark.parametrize("validate_on", ["validation", "test"])
def test_the_test_set_is_looked_at_once(tiny, place, monkeypatch, validate_on):
    passes, sessions = Counter(), []
    real = data.Batches.__iter__

    def counted(self):
        passes[id(self)] += 1
        return real(self)

    class Watching(Progress):
        def step(self, session, loss):
            sessions.append(session)

    monkeypatch.setattr(data.Batches, "__iter__", counted)
    result = run(tiny(validate_on=validate_on), place, progress=Watching())
    session = sessions[0]
    assert passes[id(session.test_batches)] == 1
    assert passes[id(session.validation_batches)] == 3
    assert passes[id(session.train_batches)] == 3
    assert result["validated_on"] == validate_on
    if validate_on == "test":
        assert result["test_loss"] == result["best_validation_loss"]
