"""Which runs there are. What is missing of them is run, in this order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .bases import BASES
from .methods import CONTROLS, OURS, PAPER, PEERS, VERSION, at_rate
from .oracle import GRID_SEED, oracle_rate, tried_rates
from .records import Key, Records
from .summaries import CENTRE, NEAR_RATES
from .tasks.catalogue import CHEAPEST, FOR_OTHER_BASES, NOT_FOR_SGD, TASKS

SEEDS = (0, 1, 2, 3, 4)


class Part(NamedTuple):
    """One table of the page.

    Attributes:
        base: over which base.
        tasks: on which tasks.
        schedules: by hand, at the best rate of a grid.
        methods: other methods.
        length_factor: of all lengths.
        seeds: of the runs.
    """

    base: str
    tasks: Sequence[str]
    schedules: Sequence[str]
    methods: Sequence[str]
    length_factor: float = 1.0
    seeds: Sequence[int] = SEEDS

    def keys(self, known: Records) -> Iterator[Key]:
        """Yield the runs that can be told by now: the best rate of a grid is known after it."""
        for task in self.tasks:
            for schedule in self.schedules:
                for rate in self._rates(task, schedule, known):
                    yield self._key(task, GRID_SEED, at_rate(schedule, rate))
        for seed in self.seeds:
            for task in self.tasks:
                yield from self._of_seed(task, seed, known)

    def _of_seed(self, task: str, seed: int, known: Records) -> Iterator[Key]:
        for schedule in self.schedules:
            rate = oracle_rate(known, task, self.base, self.length_factor, schedule)
            if rate is not None:
                yield self._key(task, seed, at_rate(schedule, rate))
        for method in self.methods:
            if method not in PAPER or oracle_rate(known, task, "adamw") in NEAR_RATES:
                yield self._key(task, seed, method)

    def _rates(self, task: str, schedule: str, known: Records) -> Sequence[float]:
        return tried_rates(known, task, self.base, self.length_factor, schedule)

    def _key(self, task: str, seed: int, method: str) -> Key:
        return Key(task, seed, self.base, method, "", self.length_factor)


def parts() -> list[Part]:
    """Return everything that the page shows."""
    centre = at_rate("held", CENTRE)
    controls = [centre, *CONTROLS]
    rest = [*VERSION, *PEERS, *PAPER]
    return [
        Part("adamw", list(TASKS), ["held", "cosine"], [*OURS, *controls, *rest]),
        Part(
            "sgd",
            [task for task in TASKS if task not in NOT_FOR_SGD],
            ["held"],
            [*OURS, *CONTROLS],
            seeds=SEEDS[:3],
        ),
        *(
            Part(base, FOR_OTHER_BASES, ["held"], [*OURS, *CONTROLS], seeds=SEEDS[:3])
            for base in BASES
            if base not in ("adamw", "sgd")
        ),
        Part(
            "adamw",
            CHEAPEST,
            ["held"],
            [*OURS, centre, "prodigy", "schedule-free-adamw"],
            length_factor=10.0,
            seeds=SEEDS[:3],
        ),
    ]


def missing(known: Records, wanted: Callable[[Key], bool]) -> list[Key]:
    """Return the runs of the plan that are wanted and have no record, each once."""
    keys = (key for part in parts() for key in part.keys(known))
    return [key for key in dict.fromkeys(keys) if key not in known and wanted(key)]


def tuned(known: Records) -> Iterator[Key]:
    """Yield the runs of SelfTuner with a length, which are repeated with other constants."""
    for part in parts():
        yield from part._replace(schedules=(), methods=("self-tuned",)).keys(known)
