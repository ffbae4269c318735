"""Ten runs of a study two at a time against the same runs one after another, in one go.

    python benchmarks/study_speed.py

Every run has one thread and a process of its own in both cases, so the ratio is what running side
by side gains: 0.5 would be perfect on two cores, 0.6 is the target. The machine must be quiet.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARGET = 0.6
STUDY = ["--data", "digits", "--model", "mlp", "--batch-size", "32", "--threads", "1"]


def seconds_of(jobs: int, options: argparse.Namespace, directory: Path) -> float:
    """Time a study with this number of jobs."""
    command = [sys.executable, "-m", "annealtune", "study", *STUDY, "--method", "sgd-sa"]
    command += ["--epochs", str(options.epochs), "--seeds", f"0-{options.runs - 1}"]
    command += ["--jobs", str(jobs), "--out", str(directory / f"jobs-{jobs}")]
    source = str(Path(__file__).parents[1] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    print(
        f"{options.runs} runs of {options.epochs} epochs, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory() as directory:
        together = seconds_of(options.jobs, options, Path(directory))
        print(f"{options.jobs} at a time        {together:6.1f} s", flush=True)
        apart = seconds_of(1, options, Path(directory))
        print(f"one after another  {apart:6.1f} s")
    ratio = together / apart
    print(f"ratio              {ratio:6.2f}   target at most {TARGET}")
    sys.exit(ratio > TARGET)


if __name__ == "__main__":
    main()
