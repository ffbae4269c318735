"""Several processes: bit-equal weights on all ranks, the decisions of one process."""

from __future__ import annotations

import math

import pytest
import scenarios
import torch


def assert_alike(answers, single, *, decisions=True):
    """All ranks have the same bits, and but for rounding what one process has."""
    assert len({answer["digest"] for answer in answers}) == 1
    for ours, theirs in zip(answers[0]["weights"], single["weights"], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    if decisions:
        assert answers[0]["decisions"] == single["decisions"]


CASES = [
    {"kind": "self-adamw", "steps": 240},
    {"kind": "ssa", "steps": 60},
    {"kind": "sgd-sa", "steps": 60, "around": "fsdp", "accumulate": 2},
]
MORE = [
    {"kind": "sgd-sa", "steps": 200, "around": "fsdp", "accumulate": 2},
    {"kind": "sgd-sa", "steps": 240, "accumulate": 2},
    {"kind": "self-adamw", "steps": 200, "around": "fsdp"},
]


@pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE)], ids=str
)
def test_two_ranks_decide_as_one_process(world, case):
    answers = world(2)("train", **case)
    single = scenarios.train(**case)
    assert_alike(answers, single)
    if "verdicts" in single:
        assert all(answer["verdicts"] == single["verdicts"] for answer in answers)
    if case["kind"] == "sgd-sa":
        assert sum(not accepted for _, accepted in single["verdicts"]) > 0


def test_a_centre_that_is_measured_differs_by_rounding_alone(world):
    answers = world(2)("train", kind="self-sgd", steps=240)
    single = scenarios.train(kind="self-sgd", steps=240)
    assert_alike(answers, single, decisions=False)
    assert math.isclose(answers[0]["rate"], single["rate"], rel_tol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["record", "closure"])
@pytest.mark.parametrize("around", ["ddp", "fsdp"])
@pytest.mark.parametrize("kind", ["self-adamw", "sgd-sa", "adamw-h"])
def test_every_way_to_step(world, kind, around, way):
    case = {"kind": kind, "steps": 240, "way": way, "around": around}
    assert_alike(world(2)("train", **case), scenarios.train(**case))


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("weights", "weights"),
        ("model", "models"),
        ("H", "decisions"),
        ("seed of a tuner with H", "decisions"),
        ("length", "decisions"),
        ("arms", "settings"),
        ("drift", "weights"),
    ],
)
def test_ranks_that_differ_are_an_error_on_each(world, what, named):
    for number, answer in enumerate(world(2).answers("disagree", what=what)):
        assert answer.get("error") == "RanksError", answer
        assert named in answer["text"]
        assert f"rank {number}" in answer["text"]


@pytest.mark.parametrize("kind", ["self-adamw", "sgd-sa"])
def test_a_loss_that_breaks_on_one_rank_breaks_on_all(world, kind):
    places = [3, 150]  # inside a race and outside of one
    answers = world(2)("break_on_one_rank", kind=kind, places=places)
    assert answers[0] == answers[1]
    assert answers[0]["finite"]
    raised = [(place, "NonFiniteLossError") for place in places]
    assert answers[0]["raised"] == (raised if kind == "sgd-sa" else [])


def test_a_group_of_one_makes_a_rank_independent(world):
    one, other = world(2)("alone")
    assert one["digest"] != other["digest"]
    assert one["decisions"] != other["decisions"]


@pytest.mark.parametrize("kind", ["self-adamw", pytest.param("sgd-sa", marks=pytest.mark.slow)])
def test_parts_of_different_sizes_weigh_what_their_gradients_weigh(world, kind):
    assert_alike(world(2)("uneven", kind=kind), scenarios.uneven(kind=kind))


@pytest.mark.parametrize(
    ("kind", "around", "at"),
    [
        ("self-adamw", "ddp", 9),
        pytest.param("self-adamw", "fsdp", 9, marks=pytest.mark.slow),
        pytest.param("sgd-sa", "fsdp", 100, marks=pytest.mark.slow),
    ],
)
def test_saved_in_the_middle_and_loaded(world, kind, around, at):
    for digests in world(2)("resume", kind=kind, around=around, at=at):
        assert digests["resumed"] == digests["at a stretch"]


def test_an_accept_test_leaves_the_buffers_to_ddp(world):
    for found in world(2)("with_batchnorm"):
        for ours, theirs in zip(found["tuner"], found["plain"], strict=True):
            assert torch.equal(ours, theirs)


def test_what_is_recorded_inside_the_forward_of_ddp(world):
    assert_alike(world(2)("inside_ddp"), scenarios.inside_ddp())


def test_without_a_loss(world):
    for answer in world(2).answers("blind"):
        assert answer["error"] == "TypeError"
        assert "loss" in answer["text"]


@pytest.mark.parametrize("around", ["ddp", "fsdp"])
@pytest.mark.parametrize("kind", ["self-adamw", "sgd-sa", "ssa"])
def test_ranks_with_different_scores_keep_the_same_weights(world, kind, around):
    answers = world(2)("validate", kind=kind, around=around)
    assert answers[0] == answers[1]
    assert answers[0]["seen"] == [2.0, 1.5, 2.0]
    assert [kept for _, _, kept, _ in answers[0]["looks"]] == [True, True, False]
