"""The peers of benchmarks/quality keep to the budget, train, and say so when they fail."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.quality import peers
from benchmarks.quality.methods import METHODS, PAPER, PEERS
from benchmarks.quality.tasks.task import Sources
from tests.benchmarks.line import PACKAGES, Breaking, Line, Normalised, Uneven, skip_without

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [*PEERS, *PAPER])
class TestEveryMethod:
    @pytest.mark.parametrize("kind", [Line, Uneven])
    def test_stays_within_the_budget_and_learns(self, name, kind):
        skip_without(name)
        task = kind(Sources())
        record = METHODS[name](task, "adamw")
        assert record["budget"] == 120
        assert 0 < record["minibatches"] <= record["cost"] <= 120
        assert record["cost"] > 118  # what is left does not pay another step
        assert record["test"] < task.score(task.network(), "test")

    def test_same_run_twice(self, name):
        skip_without(name)
        first, second = (METHODS[name](Line(Sources(), seed=3), "adamw") for _ in range(2))
        assert first == second

    def test_says_that_a_run_is_broken(self, name):
        skip_without(name)
        record = METHODS[name](Breaking(Sources()), "adamw")
        assert record["final_validation"] is record["final_test"] is None
        assert 49 <= record["cost"] <= 120

    def test_prints_nothing(self, name, capsys):
        skip_without(name)
        METHODS[name](Line(Sources()), "adamw")
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["schedule-free-adamw", "schedule-free-sgd", "dog"])
def test_statistics_are_those_of_the_weights_that_are_evaluated(name, monkeypatch):
    skip_without(name)
    task = Normalised(Sources())
    recalibrated = METHODS[name](task, "adamw")
    assert recalibrated["test"] < task.score(task.network(), "test")
    monkeypatch.setattr(peers, "recalibrate", lambda *_: None)
    assert METHODS[name](task, "adamw")["test"] != recalibrated["test"]


def moved_in_one_step(name, kind=Uneven):
    """How far weight and bias go; from zero, no weight decay is in it."""
    task = kind(Sources())
    task.steps = 1
    METHODS[name](task, "adamw")
    return abs(task.trained.weight.item()), abs(task.trained.bias.item())


@pytest.mark.parametrize("name", ["d-adaptation", "schedule-free-adamw", "mechanic"])
def test_groups_keep_their_ratio(name):
    skip_without(name)
    weight, bias = moved_in_one_step(name)
    assert bias == pytest.approx(0.1 * weight, rel=1e-3)


@pytest.mark.parametrize("name", ["schedule-free-sgd"])
def test_groups_keep_their_ratio_along_the_gradient(name):
    skip_without(name)
    ratios = []
    for kind in (Line, Uneven):
        weight, bias = moved_in_one_step(name, kind)
        ratios.append(bias / weight)
    assert ratios[1] == pytest.approx(0.1 * ratios[0], rel=1e-3)


def test_prodigy_has_one_rate_for_all():
    skip_without("prodigy")
    weight, bias = moved_in_one_step("prodigy")
    assert bias == pytest.approx(weight, rel=1e-3)


def test_no_peer_is_imported_before_it_is_asked_for():
    code = "import sys, benchmarks.quality.methods; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {name.split(".")[0] for name in PACKAGES.values()} & set(done.stdout.split())
