"""Does anything grow with the size: many runs, long runs, a large H, a large net.

    python -m benchmarks.load [study] [epochs] [settings] [parameters] [--small] [--size N]

Each part is measured at a tenth of its size and at all of it (1,000 runs, 100,000 epochs, an H of
10,000, 200 million parameters; --small takes a fiftieth), each in a process of its own on one
thread. What is flat has the same number per unit in both columns: `ratio` is the second over the
first. Times are CPU time, memory is the peak of the process beyond what it had before. Everything
is written to a temporary directory, in memory where the machine offers that.

The runs, epochs and steps are real. The study runs in this process instead of one process a run:
starting Python a thousand times is not what is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

SIZES = {"study": 1_000, "epochs": 100_000, "settings": 10_000, "parameters": 200_000_000}
UNITS = {"study": "run", "epochs": "epoch", "settings": "setting", "parameters": "parameter"}
TINY = {"model": "mlp-w8", "train_size": 40, "batch_size": 18, "threads": 1}
MEGABYTE = 1e6


class Meter:
    """Seconds and bytes since the last reading."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._seconds, self._memory = process_time(), _peak()

    def seconds(self) -> float:
        return process_time() - self._seconds

    def memory(self) -> float:
        return _peak() - self._memory


def _peak() -> float:
    """The largest memory so far; getrusage would count that of the process which started this."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024.0 * int(line.split()[1])
    raise SystemExit("this benchmark reads /proc, which Linux alone has")


@contextlib.contextmanager
def place() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


def study(size: int) -> dict[str, float]:
    """Half of the runs of each of two methods; the report over all of them."""
    from rich.console import Console

    from annealtune.studies.plan import make_plan
    from annealtune.studies.records import read_study
    from annealtune.studies.report.study_page import write_report
    from annealtune.studies.run import Display, run_study
    from annealtune.training.runs import run
    from annealtune.training.stopping import StopRequest

    class InThisProcess:
        def run(self, tasks: Any, observer: Any, stop: Any) -> None:
            for task in tasks:
                observer("started", task, "")
                run(task.config, task.path)
                observer("finished", task, "")

    def start(path: Path) -> None:
        display = Display(Console(file=io.StringIO()))
        run_study(plan, path, InThisProcess(), display, StopRequest())

    seeds = tuple(range(size // 2))
    values = {**TINY, "epochs": 2}
    plan = make_plan(values, name="load", methods=["sgd", "sgd-sa"], seeds=seeds)
    with place() as directory:
        path, found, meter = directory / "study", {}, Meter()
        start(path)
        found["seconds to run"], found["bytes to run"] = meter.seconds(), meter.memory()
        written = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        found["bytes on disk"] = float(written)
        meter.restart()
        start(path)  # nothing is left to do
        found["seconds to start again"] = meter.seconds()
        found |= _reported(meter, lambda: write_report(read_study(path), figures=False))
    return found


def _reported(meter: Meter, write: Callable[[], Path]) -> dict[str, float]:
    """What the making of a page takes, and its size."""
    meter.restart()
    page = write()
    found = {"seconds to report": meter.seconds(), "bytes to report": meter.memory()}
    return {**found, "bytes of the page": float(page.stat().st_size)}


def epochs(size: int, method: str = "self-tuned") -> dict[str, float]:
    """One run; its records, checkpoints and page."""
    from annealtune.studies.records import read_lone_run
    from annealtune.studies.report.run_page import write_run_report
    from annealtune.training.config import from_values
    from annealtune.training.describe import describe_run
    from annealtune.training.runs import run

    config = from_values({**TINY, "epochs": size, "method": method}, "load")
    with place() as directory:
        path, found, meter = directory / "run", {}, Meter()
        before = _characters()
        run(config, path)
        read, written = (now - then for now, then in zip(_characters(), before, strict=True))
        found["seconds to run"], found["bytes to run"] = meter.seconds(), meter.memory()
        found["bytes read"], found["bytes written"] = float(read), float(written)
        checkpoint = max(file.stat().st_size for file in (path / "checkpoints").glob("*.pt"))
        found["bytes of a checkpoint"] = float(checkpoint)
        meter.restart()
        describe_run(path)
        found["seconds to inspect"] = meter.seconds()
        found |= _reported(meter, lambda: write_run_report(read_lone_run(path), figures=False))
    return found


def _characters() -> tuple[int, int]:
    """What this process has read and written so far."""
    import psutil

    counters: Any = psutil.Process().io_counters()
    return counters.read_chars, counters.write_chars


def settings(size: int) -> dict[str, float]:
    """An H of that many rates: the making of a tuner, its steps, its state."""
    import torch
    from torch import nn

    from annealtune import EmbeddedTuner, grid

    found, meter = {}, Meter()
    model = nn.Linear(8, 1)
    x, y = torch.randn(16, 8), torch.randn(16, 1)
    neighborhood = grid(lr=[1e-6 * 1e5 ** (k / (size - 1)) for k in range(size)])
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    tuner = EmbeddedTuner(base, model=model, neighborhood=neighborhood)
    found["seconds to construct"], found["bytes to construct"] = meter.seconds(), meter.memory()
    meter.restart()
    for _ in range(300):
        tuner.step(lambda: nn.functional.mse_loss(model(x), y))
    found["seconds of 300 steps"] = meter.seconds()
    meter.restart()
    state = io.BytesIO()
    torch.save(tuner.state_dict(), state)
    found["seconds to save"] = meter.seconds()
    found["bytes of the state"] = float(len(state.getvalue()))
    return found


def parameters(size: int) -> dict[str, float]:
    """One large matrix: what a step of Algorithm 2 and a race of four take, in its own bytes."""
    import torch
    from torch import nn

    from annealtune import EmbeddedTuner, SelfTuner

    side = round(size**0.5)
    model = nn.Linear(side, side, bias=False)
    weight = nn.init.zeros_(model.weight)
    found = {"bytes of the model": 4.0 * side * side}
    x = torch.ones(1, side) / side

    def loss() -> torch.Tensor:
        return (x @ weight).square().mean() - weight[0, 0]

    base = torch.optim.SGD([weight], lr=0.1)
    base.zero_grad()
    loss().backward()
    base.step()
    meter = Meter()
    tuner: Any = EmbeddedTuner(base, model, temperature=0.0)
    for _ in range(3):
        tuner.step(loss)
    found["bytes for Algorithm 2"] = meter.memory()
    del tuner
    base = torch.optim.SGD([weight], lr=0.1)
    tuner = SelfTuner(base, model, total_steps=10_000, around=0.01, average=False)
    for _ in range(3):
        tuner.step(loss)
    found["bytes for a race of four"] = meter.memory()
    return found


PARTS: dict[str, Callable[[int], dict[str, float]]] = {
    "study": study,
    "epochs": epochs,
    "settings": settings,
    "parameters": parameters,
}


def measured(part: str, size: int) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.load", part, "--measure", "--size", str(size)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{part} at {size}: {done.stderr.strip()}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(part: str, size: int) -> str:
    """Measure a part at two sizes; return a table with what a unit takes."""
    small, large = size // 10, size
    ones, others = measured(part, small), measured(part, large)
    unit = UNITS[part]
    lines = [f"| {part} | {small:,} | {large:,} | ratio per {unit} |", "|---|--:|--:|--:|"]
    for name in ones:
        one, other = ones[name], others[name]
        ratio = f"{(other / large) / (one / small):.2f}" if one > 0 else "-"
        lines.append(f"| {_told(name)} | {_shown(name, one)} | {_shown(name, other)} | {ratio} |")
    return "\n".join(lines)


def _told(name: str) -> str:
    return name.replace("bytes", "MB", 1)


def _shown(name: str, value: float) -> str:
    return f"{value / MEGABYTE:,.2f}" if name.startswith("bytes") else f"{value:,.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="part")
    parser.add_argument("--small", action="store_true", help="a fiftieth of each size")
    parser.add_argument("--size", type=int, help="of one part, instead of its own")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        warnings.simplefilter("ignore")
        print(json.dumps(PARTS[given.parts[0]](given.size)))
        return
    for part in given.parts or PARTS:
        size = given.size or SIZES[part] // (50 if given.small else 1)
        print(f"\n{table(part, size)}", flush=True)


if __name__ == "__main__":
    main()
