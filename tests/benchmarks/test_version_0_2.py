"""Version 0.2, taken from git, in a process of its own."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.quality import version_0_2
from benchmarks.quality.tasks.task import Sources
from tests.benchmarks.line import Line, skip_without

ROOT = Path(__file__).parents[2]


def test_a_task_must_be_in_the_catalogue():
    with pytest.raises(version_0_2.OldVersionError, match="catalogue alone, got Line"):
        version_0_2.default(Line(Sources()))


def test_a_shallow_clone_does_not_have_it(monkeypatch, tmp_path):
    monkeypatch.setattr(version_0_2, "COMMIT", "0" * 40)
    with pytest.raises(version_0_2.OldVersionError, match="--unshallow"):
        version_0_2._code(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_runs_within_the_budget(tmp_path):
    skip_without("autolrs")  # scikit-learn has the digits
    known = subprocess.run(
        ["git", "cat-file", "-e", version_0_2.COMMIT], cwd=ROOT, capture_output=True
    )
    if known.returncode:
        pytest.skip("a shallow clone")
    from benchmarks.quality.tasks.images import Digits

    task = Digits(Sources(cache=tmp_path), 0, 0.2)
    record = version_0_2.default(task)
    assert 200 < record["minibatches"] <= record["cost"] <= 240
    assert record["test"] < 0.5 * task.score(task.network(), "test")
