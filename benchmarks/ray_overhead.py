"""What Ray costs a study: the same runs with the local engine and with Ray, 1 and 2 at a time.

    python benchmarks/ray_overhead.py

Ray is started on this machine for each study, as `annealtune study --engine ray` does. All studies
are made in one go, one after another, and only their ratios mean something elsewhere. Two numbers
of runs are timed, so that what a study costs once is told apart from what every run costs. The
machine must be quiet.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STUDY = ["--data", "digits", "--model", "mlp", "--batch-size", "32", "--threads", "1"]
ENGINES = ("local", "ray")


def seconds_of(engine: str, jobs: int, runs: int, epochs: int, directory: Path) -> float:
    """Time a study."""
    command = [sys.executable, "-m", "annealtune", "study", *STUDY, "--method", "sgd-sa"]
    command += ["--epochs", str(epochs), "--seeds", f"0-{runs - 1}", "--engine", engine]
    command += ["--jobs", str(jobs), "--out", str(directory / f"{engine}-{jobs}-{runs}")]
    source = str(Path(__file__).parents[1] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs=2, default=(2, 10), metavar=("FEW", "MANY"))
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    few, many = options.runs
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.epochs} epochs a run")
    print(f"{'engine':<8}{'at a time':>10}{'once':>9}{'a run':>9}{f'{many} runs':>10}")
    totals, each = {}, {}
    with tempfile.TemporaryDirectory() as directory:
        for jobs in (1, 2):
            for engine in ENGINES:
                short, long = (
                    seconds_of(engine, jobs, runs, options.epochs, Path(directory))
                    for runs in (few, many)
                )
                a_run = (long - short) / (many - few)
                totals[engine, jobs], each[engine, jobs] = long, a_run
                once = short - few * a_run
                print(f"{engine:<8}{jobs:>10}{once:>7.1f} s{a_run:>7.2f} s{long:>8.1f} s", flush=True)
    for jobs in (1, 2):
        ratio = each["ray", jobs] / each["local", jobs]
        print(f"a run with Ray, {jobs} at a time: {ratio:.2f} times a local one")
    for engine in ENGINES:
        ratio = totals[engine, 2] / totals[engine, 1]
        print(f"{engine}: 2 at a time take {ratio:.2f} times as long as 1")


if __name__ == "__main__":
    main()
