"""A good seed for one method, by synchronous successive halving.

All seeds train for some of the epochs, the better half goes on, and so on. A seed that stops
at a rung has run the first epochs of the full-length run, with its cooling: `epochs` is the same
for all. Every choice is made on the validation set, which is the same for all seeds. The test set
chooses nothing; only runs that reach the last epoch are scored on it.

The same plan gives the same choices whatever the number of jobs: a rung begins when all runs of the
one before have ended.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any, NamedTuple

from annealtune.errors import ConfigError, RunError
from annealtune.studies.display import Display
from annealtune.studies.engines import Engine, Task
from annealtune.studies.plan import Plan
from annealtune.studies.records import SEARCH_FILE, RunRecord, Study, read_run, read_study
from annealtune.studies.run import opened_tasks, run_tasks, tasks_of
from annealtune.training.config import RunConfig
from annealtune.training.stopping import StopRequest
from annealtune.training.storage.files import write_atomically
from annealtune.training.storage.seal import sealed_text

KIND = "best-seed"
# Regression has no accuracy: its loss alone counts.
_SCORES = ("validation_accuracy", "validation_loss")


@dataclasses.dataclass(frozen=True)
class Halving:
    """How fast seeds are given up.

    Attributes:
        reduction: of this many seeds one goes on to the next rung, which is as many times longer.
        first_rung: epochs of the first rung; by default so short that one or a few seeds reach the
            end.
            SGD-SA accepts almost everything while it is hot, so that its first epochs tell little.
    """

    reduction: int = 2
    first_rung: int | None = None

    def __post_init__(self) -> None:
        if self.reduction < 2:
            raise ConfigError(f"reduction = {self.reduction}: must be 2 or more")
        if self.first_rung is not None and self.first_rung < 1:
            raise ConfigError(f"first_rung = {self.first_rung}: must be 1 or more")


class Rung(NamedTuple):
    """How long a run must be here, and how many seeds there are at most."""

    epochs: int
    seeds: int


def rungs(epochs: int, seeds: int, halving: Halving) -> list[Rung]:
    """Return the rungs of a search, the last one of full length.

    Example:
        >>> rungs(40, 10, Halving())
        [Rung(epochs=5, seeds=10), Rung(epochs=10, seeds=5), Rung(epochs=20, seeds=3), \
Rung(epochs=40, seeds=2)]
    """
    reductions = math.floor(math.log(seeds, halving.reduction) + 1e-9)
    length = halving.first_rung or max(1, math.ceil(epochs / halving.reduction**reductions))
    found: list[Rung] = []
    while length < epochs and seeds > 1:
        found.append(Rung(length, seeds))
        length *= halving.reduction
        seeds = math.ceil(seeds / halving.reduction)
    return [*found, Rung(epochs, seeds)]


def hunt(
    plan: Plan,
    path: Path,
    engine: Engine,
    display: Display,
    stop: StopRequest,
    *,
    halving: Halving,
    retry_failed: bool = False,
) -> Study:
    """Search the seeds of a plan for the one that does best on the validation set.

    It takes what `run_study` takes. ``search.json`` in the directory is the log of all choices.

    Returns:
        The study; its ``search`` holds the rungs and the winner.

    Raises:
        ConfigError: if the plan compares methods, or lets the test set choose.
        RunError: if every run failed, another process holds the directory, or the disk refuses.
        RunStoppedError: if it was asked to stop; the same call goes on from there.
    """
    plan = _on_the_same_images(plan)
    method, epochs = _check(plan)
    search = {"kind": KIND, "reduction": halving.reduction}
    if halving.first_rung is not None:
        search["first_rung"] = halving.first_rung
    with opened_tasks(plan, path, display, retry_failed=retry_failed, search=search) as tasks:
        log: dict[str, Any] = {**search, "method": method, "vary": plan.vary, "rungs": []}
        ladder = rungs(epochs, len(tasks), halving)
        for number, rung in enumerate(ladder, 1):
            tasks = [_until(task, rung.epochs) for task in tasks]
            title = f"rung {number} of {len(ladder)}, epoch {rung.epochs}"
            run_tasks(tasks, engine, display, stop, title)
            room = ladder[number].seeds if number < len(ladder) else 1
            kept = _judge(log, path, tasks, rung, room)
            tasks = [task for seed in kept for task in tasks if task.seed == seed]
            write_atomically(path / SEARCH_FILE, sealed_text(log))
        winner = read_run(path, method, tasks[0].seed)
        log["winner"] = _crown(winner, log)
        log["epochs_trained"] = sum(task.epochs_done() for task in tasks_of(plan, path))
        log["epochs_without_pruning"] = epochs * len(plan.seeds)
        write_atomically(path / SEARCH_FILE, sealed_text(log))
    return read_study(path)


def _check(plan: Plan) -> tuple[str, int]:
    if len(plan.methods) != 1:
        raise ConfigError(
            f"search = {KIND!r}: takes one method, got {', '.join(plan.methods)}; methods are "
            "compared without pruning, by a study without --search"
        )
    method = plan.methods[0]
    config = plan.configs[method]
    if config.validate_on == "test":
        raise ConfigError(
            f"search = {KIND!r}: validate_on = 'test' would let the test set choose the seed and "
            "leave no fresh data to score it on; take --validate-on validation"
        )
    return method, config.epochs


def _on_the_same_images(plan: Plan) -> Plan:
    """Give all seeds one subset and validation split, so that none wins by easier images."""

    def fixed(config: RunConfig) -> RunConfig:
        varies = plan.vary == "data_seed" or (plan.vary == "seed" and config.data_seed is None)
        if config.split_seed is not None or not varies:
            return config
        return config.model_copy(update={"split_seed": 0})

    configs = {label: fixed(config) for label, config in plan.configs.items()}
    return dataclasses.replace(plan, configs=configs)


def _until(task: Task, epochs: int) -> Task:
    return dataclasses.replace(task, stop_after=epochs if epochs < task.config.epochs else None)


def _judge(log: dict[str, Any], path: Path, tasks: list[Task], rung: Rung, room: int) -> list[int]:
    """Rank the seeds of a rung, write it down and return those that go on, best first."""
    scores: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for task in tasks:
        run = read_run(path, task.method, task.seed)
        if run.status == "failed":
            failed.append({"seed": run.seed, "reason": run.reason})
        else:
            scores.append(_score(run, rung.epochs))
    scores.sort(key=_rank)  # stable: of equal seeds the one named first
    kept = [score["seed"] for score in scores[:room]]
    pruned = [score["seed"] for score in scores[room:]]
    log["rungs"].append(
        {"epochs": rung.epochs, "scores": scores, "failed": failed, "kept": kept, "pruned": pruned}
    )
    if not kept:
        write_atomically(path / SEARCH_FILE, sealed_text(log))
        raise RunError(
            f"{path}: every run of the search has failed, the last with: {failed[-1]['reason']}"
        )
    return kept


def _score(run: RunRecord, epochs: int) -> dict[str, Any]:
    """Return the best epoch of a run up to a rung, by the rule that chooses its best weights."""
    records = [
        {
            "seed": run.seed,
            "best_epoch": record["epoch"],
            **{key: record[key] for key in _SCORES if key in record},
        }
        for record in run.metrics[:epochs]
    ]
    if len(records) < epochs:
        raise RunError(f"{run.path}: has {len(records)} epochs on record, the rung needs {epochs}")
    return min(records, key=_rank)


def _rank(score: dict[str, Any]) -> tuple[float, float]:
    loss = score["validation_loss"]
    return -score.get("validation_accuracy", 0.0), math.inf if loss is None else loss


def _crown(run: RunRecord, log: dict[str, Any]) -> dict[str, Any]:
    if run.result is None:
        raise RunError(f"{run.path}: won the search but has no result: {run.reason}")
    return {
        **log["rungs"][-1]["scores"][0],
        **{key: run.result[key] for key in ("test_accuracy", "test_loss") if key in run.result},
    }
