"""The documented example of the engine interface; without Slurm its jobs are processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from annealtune.studies.engines.local import LocalEngine
from annealtune.studies.plan import make_plan
from annealtune.studies.run import run_study
from annealtune.training.stopping import StopRequest

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "cluster" / "slurm_study.py"


@pytest.mark.slow
def test_the_example_runs_and_its_study_is_that_of_the_local_engine(place, recorder, outcome):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    for _ in range(2):  # the second time there is nothing left to do
        done = subprocess.run(
            [sys.executable, EXAMPLE],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "seed 0 finished, seed 1 finished\n"
    values = {"data": "digits", "model": "mlp-w32", "epochs": 5, "threads": 1}
    plan = make_plan(values, name="slurm", methods=["self-tuned"], seeds=range(2))
    run_study(plan, place / "local", LocalEngine(2), recorder, StopRequest())
    assert outcome(place / "studies/slurm") == outcome(place / "local")
