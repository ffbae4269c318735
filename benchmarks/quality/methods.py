"""The methods by name, and one run of any of them."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from annealtune.errors import DataError
from benchmarks.records import Key, provenance

from . import autolrs, fixed, peers, tuned, variants, version_0_2
from .gradients import Record
from .tasks.catalogue import TASKS
from .tasks.task import Sources, Task

# A method is a function of a task and the name of a base.
Method = Callable[[Task, str], Record]

OURS: dict[str, Method] = {"self-tuned": tuned.with_length, "anytime": tuned.anytime}
CONTROLS: dict[str, Method] = {
    "random-arm": tuned.random_arm,
    "held-centre": lambda task, base: fixed.held(
        task, base, fixed.centre(task, base, relative=True)
    ),
    "held-quarter": lambda task, base: fixed.held(
        task, base, fixed.centre(task, base, relative=False) / 4
    ),
}
# None of these reads the name of a base.
PEERS: dict[str, Method] = {
    "prodigy": peers.prodigy,
    "d-adaptation": peers.d_adaptation,
    "schedule-free-adamw": peers.schedule_free_adamw,
    "schedule-free-sgd": peers.schedule_free_sgd,
    "dog": peers.dog,
    "mechanic": peers.mechanic,
    "line-search": peers.line_search,
    "autolrs": autolrs.autolrs,
}
PAPER: dict[str, Method] = {"paper-text": tuned.paper_text, "paper-code": tuned.paper_code}
VERSION: dict[str, Method] = {"version-0.2": version_0_2.default}
METHODS: dict[str, Method] = {**OURS, **CONTROLS, **PEERS, **PAPER, **VERSION}

# A schedule whose rate is given in its name: "held-at-0.003", "cosine-at-0.01".
SCHEDULES: dict[str, Callable[[Task, str, float], Record]] = {
    "held": fixed.held,
    "cosine": fixed.cosine,
}


def at_rate(schedule: str, rate: float) -> str:
    """Return the name of the method that trains at one rate."""
    return f"{schedule}-at-{rate:g}"


def run(key: Key, sources: Sources) -> Record:
    """Make one run; one that raises is a record too."""
    torch.set_num_threads(1)
    task = TASKS[key.task](sources, key.seed, key.length_factor)
    started = time.perf_counter()
    try:
        with variants.applied(key.variant):
            record = _method(key.method)(task, key.base)
    except (DataError, ImportError, version_0_2.OldVersionError):
        raise  # something to install or to fetch, and then to start again
    except Exception as error:  # noqa: BLE001  (nothing is lost: the page lists it)
        record = {"failure": f"{type(error).__name__}: {error}"}
    seconds = round(time.perf_counter() - started, 2)
    return {**key._asdict(), **record, **provenance(), "seconds": seconds}


def _method(name: str) -> Method:
    schedule, is_fixed, rate = name.partition("-at-")
    if not is_fixed:
        return METHODS[name]
    return lambda task, base: SCHEDULES[schedule](task, base, float(rate))
