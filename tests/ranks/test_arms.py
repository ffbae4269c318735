"""The arms of a race side by side in several processes: the run of one process, bit for bit."""

from __future__ import annotations

import pytest
import scenarios
import torch

CASES = [{"base": "self-adamw", "given": "H"}, {"base": "self-adamw", "at": 9}]
MORE = [
    {"base": "self-adamw"},
    {"base": "self-sgd"},
    {"base": "self-adamw", "given": "objective"},
]


def assert_equal(answer, single):
    assert answer["races"] == single["races"]
    assert answer["rate"] == single["rate"]
    assert answer["extra_steps"] == single["extra_steps"] > 0
    for ours, theirs in zip(answer["weights"], single["weights"], strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE)], ids=str
)
def test_two_processes_race_as_one(world, case):
    single = scenarios.race_apart(case["base"], given=case.get("given", ""))
    for answer in world(2)("race_apart", **case):
        assert_equal(answer, single)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 6])  # a part of the arms each; one process without any
@pytest.mark.parametrize("base", ["self-adamw", "self-sgd"])
def test_any_number_of_processes(world, size, base):
    single = scenarios.race_apart(base, steps=1000)
    for answer in world(size)("race_apart", base=base, steps=1000):
        assert_equal(answer, single)


def test_the_arms_of_another_process(world):
    for answer in world(2).answers("load_elsewhere"):
        assert answer["error"] == "ValueError"
        assert "must be loaded into the process that saved them" in answer["text"]
