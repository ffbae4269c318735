"""Lightning and Hugging Face over two processes: the run of a plain loop in DDP."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow  # each process imports a framework

CASES = [
    {"framework": "by_hugging_face"},
    {"framework": "by_hugging_face", "accumulate": 2},
    {"framework": "by_lightning"},
    {"framework": "by_lightning", "accumulate": 2},
    {"framework": "by_lightning", "accumulate": 4, "loss": "compute_loss"},
]


@pytest.mark.parametrize("kind", ["self-adamw", "sgd-sa"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_two_processes(world, kind, case):
    case = dict(case)
    scenario = f"framework_scenarios.{case.pop('framework')}"
    answers = world(2)(scenario, kind=kind, **case)
    accumulate = case.get("accumulate", 1)
    plain = world(2)("framework_scenarios.plain", kind=kind, accumulate=accumulate)
    for answer, own in zip(answers, plain, strict=True):
        assert answer["digest"] == own["digest"]
        assert answer["decisions"] == own["decisions"]
        if "loss" in case:
            assert answer["calls"] == 240 * accumulate
    assert len({answer["digest"] for answer in answers}) == 1


def test_manual_optimization_is_refused(world):
    for answer in world(2).answers("framework_scenarios.by_lightning", kind="sgd-sa", manual=True):
        assert answer["error"] == "ValueError"
        assert "automatic" in answer["text"]
