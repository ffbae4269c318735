"""Which runs there are, which are missing, and which rate a reference takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .methods import METHODS
from .records import Record, latest
from .run import Spec
from .tasks import TASKS

SEARCH_SEED = 0


@dataclass(frozen=True)
class Selection:
    """What was asked for on the command line.

    Attributes:
        tasks: names of `TASKS`.
        methods: names of `METHODS`.
        seeds: of the runs; the rates of the references are chosen on seed 0 alone.
        variants: see `Spec`; one that is empty is the plain run.
        scale: factor of all lengths.
        retunes: whether references choose their rate again for long runs.
    """

    tasks: Sequence[str]
    methods: Sequence[str]
    seeds: Sequence[int]
    variants: Sequence[str] = ("",)
    scale: float = 1.0
    retunes: bool = False

    def searched_variant(self, variant: str) -> str:
        """Return the variant under which a reference chooses its rate for another one."""
        return variant if self.retunes and variant.startswith("length=") else ""


def applies(variant: str, method: str) -> bool:
    """Tell whether a method can be changed in this way: not every one is given a rate."""
    kind = variant.partition("=")[0]
    return kind != "base-lr" or METHODS[method].lr is not None or bool(METHODS[method].rates)


def searches(selection: Selection) -> list[Spec]:
    """Return the runs by which the references choose their rates."""
    found = [
        Spec(
            task,
            method,
            SEARCH_SEED,
            selection.searched_variant(variant),
            selection.scale,
            rate,
            is_search=True,
        )
        for task in selection.tasks
        for method in selection.methods
        for variant in selection.variants
        for rate in METHODS[method].rates
    ]
    return list(dict.fromkeys(found))


def chosen_rate(
    records: Iterable[Record], task: str, method: str, variant: str = "", scale: float = 1.0
) -> float | None:
    """Return the rate that is best on the validation part, None if no search finished.

    By the task's metric; of rates that are level the one with the lower validation loss. The test
    part has no say: records of a search have none.
    """
    sign = -1 if TASKS[task].higher_is_better else 1
    candidates = [
        (sign * r["validation"]["metric"], r["validation"]["loss"], r["options"]["lr"])
        for r in latest(records).values()
        if r["is_search"] and r["status"] == "finished"
        if (r["task"], r["method"], r["variant"], r["scale"]) == (task, method, variant, scale)
    ]
    return min(candidates)[2] if candidates else None


def final_runs(selection: Selection, records: Iterable[Record]) -> list[Spec]:
    """Return the runs that are compared, without those of references that have no rate yet.

    Seed by seed, so that whoever stops early has all methods for the first seeds.
    """
    records = list(records)
    found = []
    for seed in selection.seeds:
        for variant in selection.variants:
            for task in selection.tasks:
                for method in selection.methods:
                    if not applies(variant, method):
                        continue
                    lr = None
                    if METHODS[method].rates:
                        searched = selection.searched_variant(variant)
                        lr = chosen_rate(records, task, method, searched, selection.scale)
                        if lr is None:
                            continue
                    found.append(Spec(task, method, seed, variant, selection.scale, lr))
    return found


def missing(specs: Iterable[Spec], records: Iterable[Record]) -> list[Spec]:
    """Return the runs that have no record, finished or failed."""
    known = latest(records)
    return [spec for spec in specs if spec.key not in known]
