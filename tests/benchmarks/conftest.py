"""Made-up records of runs."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.quality.bases import GRIDS
from benchmarks.quality.oracle import grid_seeds
from benchmarks.records import Key, Record


class Runs(dict[Key, Record]):
    """Records by key, as they are read from a file."""

    def put(self, task: str, method: str, test: float | None, **other: Any) -> None:
        """Add a run; the validation score is the test score unless it is given."""
        names = {"seed": 0, "base": "adamw", "variant": "", "length_factor": 1.0}
        key = Key(task=task, method=method, **{n: other.pop(n, d) for n, d in names.items()})
        run = {"validation": test, "test": test, "final_validation": test, "final_test": test}
        run |= {"rate": None, "cost": 100.0, "budget": 100}
        run |= {"extra_steps": 0, "minibatches": 100, "races": 0, "reason": "", "cuts": 0}
        self[key] = {**key._asdict(), **run, "seconds": 2.0, **other}

    def put_grid(self, task: str, best: float, **other: Any) -> None:
        """Add the whole grid: the best rate has the score 1, so that scores are ratios to it."""
        base = other.get("base", "adamw")
        for seed in grid_seeds(base, other.get("length_factor", 1.0)):
            for schedule in ("held", "cosine"):
                for rate in GRIDS[base]:
                    score = 1.0 if rate == best else 2.0
                    named = {"seed": seed, "rate": rate, **other}
                    self.put(task, f"{schedule}-at-{rate:g}", score, **named)


@pytest.fixture
def records() -> Runs:
    """No runs yet."""
    return Runs()


@pytest.fixture
def three() -> Runs:
    """Three sealed tasks with ours, Prodigy and the fixed 3e-3 of the grid."""
    runs = Runs()
    for task, best in (("low", 1e-4), ("middle", 3e-3), ("high", 3e-2)):
        runs.put_grid(task, best)
    for task, ratio in (("low", 1.0), ("middle", 1.1), ("high", 1.21)):
        own = {"rate": 1e-3, "extra_steps": 8, "minibatches": 92, "seconds": 3.0}
        runs.put(task, "self-tuned", ratio, **own)
    for task, ratio in (("low", 0.9), ("middle", 4.0), ("high", None)):
        runs.put(task, "prodigy", ratio)
    return runs
