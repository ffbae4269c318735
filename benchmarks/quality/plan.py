"""Which runs there are. What is missing of them is run, in this order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.records import Key, Records

from .methods import CONTROLS, OURS, PAPER, PEERS, VERSION, at_rate
from .oracle import grid_seeds, oracle_rate, tried_rates
from .tasks.catalogue import CHEAPEST, FOR_OTHER_BASES, NOT_FOR_SGD, OPEN, SEALED, SECONDS

SEEDS = (0, 1, 2, 3, 4)
# Tasks whose runs take longer, in seconds, have the first three seeds.
_LONG = 20.0
# The centre of AdamW's first race, and the rates of the paper's presets: they run where one of
# these is the best.
CENTRE, NEAR_RATES = 3e-3, (1e-3, 3e-3)
# The peers that everybody would try first, 0.2, and what a race is worth.
CHIEF = ("prodigy", "schedule-free-adamw", "version-0.2", "random-arm")


def seeds_of(task: str) -> tuple[int, ...]:
    """Return the seeds of a task at most: five, or three where one run takes long."""
    return SEEDS[:3] if SECONDS.get(task, 0.0) > _LONG else SEEDS


class Part(NamedTuple):
    """One table of the page.

    Attributes:
        base: over which base.
        tasks: on which tasks.
        schedules: by hand, at the best rate of a grid.
        methods: other methods.
        length_factor: of all lengths.
        seeds: of the runs, as far as `seeds_of` has them.
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
                    for seed in grid_seeds(self.base, self.length_factor):
                        yield self._key(task, seed, at_rate(schedule, rate))
        for seed in self.seeds:
            for task in self.tasks:
                if seed in seeds_of(task):
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
    """Return everything that the page shows.

    On the open tasks, which chose the constants, ours and those it is compared with. On the sealed
    ones all methods, on all seeds.
    """
    centre = at_rate("held", CENTRE)
    ours = ["self-tuned"]
    relative = [*ours, "held-centre"]
    everything = [*OURS, centre, *CONTROLS, *VERSION, *PEERS, *PAPER]
    open_for_sgd, sealed_for_sgd = (
        [task for task in tasks if task not in NOT_FOR_SGD] for tasks in (OPEN, SEALED)
    )
    compared = [*OURS, centre, "held-quarter", *CHIEF]
    long = Part("adamw", CHEAPEST, ["held"], [*ours, centre], length_factor=10.0, seeds=SEEDS[:2])
    return [
        Part("adamw", list(OPEN), ["held"], compared),
        Part("sgd", open_for_sgd, ["held"], relative, seeds=SEEDS[:3]),
        *(
            Part(base, tasks, ["held"], relative, seeds=SEEDS[:1])
            for base, tasks in FOR_OTHER_BASES.items()
        ),
        Part("adamw", list(SEALED), ["held", "cosine"], everything),
        Part("sgd", sealed_for_sgd, ["held"], relative, seeds=SEEDS[:2]),
        long,
        long._replace(methods=["prodigy", "schedule-free-adamw"], seeds=SEEDS[:1]),
    ]


def missing(known: Records, wanted: Callable[[Key], bool]) -> list[Key]:
    """Return the runs of the plan that are wanted and have no record, each once."""
    keys = (key for part in parts() for key in part.keys(known))
    return [key for key in dict.fromkeys(keys) if key not in known and wanted(key)]


def tuned(known: Records) -> list[Key]:
    """Return the runs of SelfTuner with a length, which are repeated as variants."""
    chosen = [part for part in parts() if "self-tuned" in part.methods]
    only_ours = (part._replace(schedules=(), methods=("self-tuned",)) for part in chosen)
    return list(dict.fromkeys(key for part in only_ours for key in part.keys(known)))
