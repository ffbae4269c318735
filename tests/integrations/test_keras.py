"""Keras 3 on torch makes the decisions of a plain loop, with the train_step of the example.

In a process of its own: the backend is chosen when Keras is imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "keras_runs.py"


@pytest.fixture(scope="module")
def found():
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    ["self-tuned", "embedded", "one setting", "after the race", "rate by callback", "compile"],
)
def test_a_run_by_keras(found, run):
    assert found[run]
    assert [name for name, holds in found[run].items() if not holds] == []
