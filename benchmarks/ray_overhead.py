"""What Ray costs a study beside the local engine, for 1 and for 2 runs at a time.

    python benchmarks/ray_overhead.py

The runs do nothing but write a result, so that what is left is the engine: finding room, starting a
process, noticing its end. Few and many of them are timed, which tells what a study costs once from
what every run costs. A real run of one epoch is timed beside them, with either engine: importing
torch is most of it. All in one go on one machine; only ratios mean something elsewhere.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from annealtune.studies.engines import Engine, EventKind
from annealtune.studies.engines.local import LocalEngine
from annealtune.studies.engines.ray import RayEngine
from annealtune.studies.plan import Task, make_plan
from annealtune.training.stopping import StopRequest

WRITE = "import sys; open(sys.argv[4] + '/result.json', 'w').write('{}')"
NOTHING = (sys.executable, "-S", "-E", "-c", WRITE)


def look_away(kind: EventKind, _: Task, detail: str) -> None:
    """Say nothing of what happens, unless it must not."""
    if kind in ("failed", "retried"):
        raise SystemExit(detail)


def seconds_of(engine: Engine, runs: int) -> float:
    """Time so many runs of one epoch, in a new directory."""
    values = {"data": "digits", "model": "mlp", "epochs": 1, "threads": 1}
    plan = make_plan(values, name="benchmark", methods=["sgd-sa"], seeds=range(runs))
    with tempfile.TemporaryDirectory() as directory:
        tasks = plan.tasks(Path(directory))
        started = time.perf_counter()
        engine.run(tasks, look_away, StopRequest())
        return time.perf_counter() - started


def engine_of(name: str, jobs: int, program: Sequence[str] | None) -> Engine:
    if name == "ray":
        return RayEngine(jobs=jobs, program=program)
    return LocalEngine(jobs) if program is None else LocalEngine(jobs, program)


def peak_memory() -> float:
    """Return the most this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs=2, default=(10, 110), metavar=("FEW", "MANY"))
    parser.add_argument("--real", type=int, default=4, help="real runs, for comparison")
    options = parser.parse_args()
    source = str(Path(__file__).parents[1] / "src")
    os.environ |= {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    few, many = options.runs
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {few} and {many} empty runs")
    print(f"{'engine':<8}{'at a time':>10}{'once':>9}{'a run':>11}{'driver':>13}")
    each = {}
    for name in ("local", "ray"):
        for jobs in (1, 2):
            short = seconds_of(engine_of(name, jobs, NOTHING), few)
            before = peak_memory()
            long = seconds_of(engine_of(name, jobs, NOTHING), many)
            each[name, jobs] = (long - short) / (many - few)
            once = max(0.0, short - few * each[name, jobs])
            grown = (peak_memory() - before) / (many - few) * 1024
            print(
                f"{name:<8}{jobs:>10}{once:>7.1f} s{1000 * each[name, jobs]:>8.0f} ms"
                f"{grown:>8.1f} kB/run",
                flush=True,
            )
    print(f"driver: {peak_memory():.0f} MB at most")
    for jobs in (1, 2):
        added = each["ray", jobs] - each["local", jobs]
        print(f"Ray, {jobs} at a time: {1000 * added:+.0f} ms a run against the local engine")
    for name in ("local", "ray"):
        print(f"{name}: 2 at a time take {each[name, 2] / each[name, 1]:.2f} of 1 at a time")
    if options.real:
        real = seconds_of(engine_of("local", 1, None), options.real) / options.real
        share = (each["ray", 1] - each["local", 1]) / real
        print(f"a real run of one epoch: {real:.1f} s, of which Ray would add {share:.1%}")


if __name__ == "__main__":
    main()
