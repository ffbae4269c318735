"""Damaged files raise our own errors alone: a sample with a fixed seed, and a longer run."""

import os

import pytest

from .fuzz import Outcome, try_inputs
from .targets import TARGETS

SAMPLE = {
    "config": 200,
    "records": 40,
    "manifest": 25,
    "study": 60,
    "data": 150,
    "inspect": 50,
    "report": 3,
}


def told(outcome: Outcome) -> list[str]:
    return [f"{f.place}, inputs {f.numbers[:5]}\n{f.trace}" for f in outcome.findings.values()]


def test_every_target_has_a_sample():
    assert SAMPLE.keys() == TARGETS.keys()


@pytest.mark.parametrize("target", TARGETS)
def test_a_sample(target, made):
    outcome = try_inputs(target, made, seed=0, count=SAMPLE[target])
    assert told(outcome) == []
    # Neither is everything refused at once, nor is nothing damaged.
    assert outcome.refused > 0 or target == "report"
    assert outcome.refused < outcome.inputs


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("target", TARGETS)
def test_for_longer(target, made):
    """``ANNEALTUNE_FUZZ_SECONDS=600 ANNEALTUNE_FUZZ_SEED=7 make test-all`` for more and others."""
    seconds = float(os.environ.get("ANNEALTUNE_FUZZ_SECONDS", "30"))
    seed = int(os.environ.get("ANNEALTUNE_FUZZ_SEED", "1"))
    assert told(try_inputs(target, made, seed, seconds=seconds)) == []


def test_a_foreign_exception_is_found(monkeypatch, made):
    def broken(*_):
        raise KeyError("x")

    monkeypatch.setitem(TARGETS, "config", broken)
    [finding] = try_inputs("config", made, seed=0, count=2).findings.values()
    assert finding.place.startswith("KeyError")
    assert finding.numbers == [0, 1]


def test_the_same_seed_gives_the_same_inputs(monkeypatch, made):
    drawn = []
    monkeypatch.setitem(TARGETS, "config", lambda random, *_: drawn.append(random.random()))
    for seed in (3, 3, 4):
        try_inputs("config", made, seed, count=2)
    assert drawn[:2] == drawn[2:4] != drawn[4:]
